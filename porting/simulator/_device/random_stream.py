"""Convert the device's random state to PopTorch's form and back: a list of integers, seed first.

The device session keeps one `RandomStream`.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch

from ...engines.calls.device_state import DeviceState
from .._logging import cpp_log
from ..errors import createPoptorchError
from ..options import Options

__all__ = ["RandomStream", "list_words", "make_generator_state"]

# odd and without a pattern: seeds that users choose are small numbers and do not meet
_STREAM_DISTANCE = 0x9E3779B97F4A7C15


def make_generator_state(words: Sequence[int]) -> torch.Tensor:
    """Turn `[seed]` or `[seed, *state]` into a state of torch's CPU generator.

    Raises `poptorch.Error` for words that no executor's `rng_state` gave.

    >>> words = list_words(7, make_generator_state([7]))
    >>> words[0], torch.equal(make_generator_state(words), make_generator_state([7]))
    (7, True)
    """
    generator = torch.Generator()
    if len(words) == 1:
        return generator.manual_seed(words[0]).get_state()
    # torch's state is bytes, PopTorch's a list of integers: eight bytes make one
    try:
        state = torch.tensor(list(words[1:]), dtype=torch.int64).view(torch.uint8).clone()
        return generator.set_state(state).get_state()
    except (RuntimeError, TypeError, OverflowError) as error:
        raise createPoptorchError(f"Invalid RNG state of {len(words)} words: {error}") from None


def list_words(seed: int, state: torch.Tensor) -> List[int]:
    """Return the words for a generator's `state`."""
    return [seed, *state.view(torch.int64).tolist()]


class RandomStream:
    """The host's copy of a device's random stream; `is_behind` means that the device has run since it was read."""

    def __init__(self, options: Options) -> None:
        """Start with the seed that the executor's `options` name, or with nothing."""
        self._options = options
        self._words: Optional[List[int]] = [self._seed] if options.exists("random_seed") else None
        self.is_behind = False

    def read(self, device: Optional[DeviceState]) -> Optional[List[int]]:
        """Return seed and state, read from `device` if it has moved on; before the first run the seed, if any."""
        if self.is_behind and device is not None:
            cpp_log("debug", "Reading random seed")
            cpp_log("debug", "Reading RNG state")
            self.is_behind = False
            if device.rng_state is None:  # no operator has drawn a number yet
                device.rng_state = make_generator_state([self._seed])
            self._words = list_words(self._seed, device.rng_state)
        return None if self._words is None else list(self._words)

    def keep(self, words: Sequence[int]) -> None:
        """Let a copy of `words` replace the device's state with the next `send`."""
        # raises for words that are none, before anything changes
        make_generator_state(words)
        self._words = list(words)
        self.is_behind = False

    def send(self, device: DeviceState) -> None:
        """Continue the stream of `device` from the host's copy, if there is one."""
        words = self._words
        if words is None:
            return
        cpp_log("debug", f"Setting random seed to {words[0]}")
        if len(words) > 1:
            cpp_log("debug", "Setting RNG state")
        elif self._options.Distributed.processId:
            # Another seed for each process of a distributed program: their replicas must not all drop the same units.
            words = [(words[0] + self._options.Distributed.processId * _STREAM_DISTANCE) % 2**64]
        device.rng_state = make_generator_state(words)

    @property
    def _seed(self) -> int:
        return self._options.random_seed if self._options.exists("random_seed") else 0
