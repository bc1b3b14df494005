"""The device's random stream in PopTorch's form, a list of integers: the seed, then the words of the state."""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch

from ...engines.calls.device_state import DeviceState
from .._logging import cpp_log
from ..errors import createPoptorchError
from ..options import Options

__all__ = ["RandomStream", "generator_state", "stream_words"]

# odd and without a pattern: seeds that users choose are small numbers and do not meet
_STREAM_DISTANCE = 0x9E3779B97F4A7C15


def generator_state(words: Sequence[int]) -> torch.Tensor:
    """Turn `[seed]` or `[seed, *state]` into a state of torch's CPU generator.

    Raises `poptorch.Error` for words that no executor's `rng_state` gave.

    >>> words = stream_words(7, generator_state([7]))
    >>> words[0], torch.equal(generator_state(words), generator_state([7]))
    (7, True)
    """
    generator = torch.Generator()
    if len(words) == 1:
        return generator.manual_seed(words[0]).get_state()
    try:
        state = torch.tensor(list(words[1:]), dtype=torch.int64).view(torch.uint8).clone()
        return generator.set_state(state).get_state()
    except (RuntimeError, TypeError, OverflowError) as error:
        raise createPoptorchError(f"Invalid RNG state of {len(words)} words: {error}") from None


def stream_words(seed: int, state: torch.Tensor) -> List[int]:
    """Return the words for a generator's `state`."""
    return [seed, *state.view(torch.int64).tolist()]


class RandomStream:
    """The host's copy of a device's random stream.

    `is_behind` says that the device has run since the copy was read, so that its stream has moved on.
    """

    def __init__(self, options: Options) -> None:
        """Start with the seed that the executor's `options` name, or with nothing."""
        self._options = options
        self._words: Optional[List[int]] = [self._seed] if options.exists("random_seed") else None
        self.is_behind = False

    def read(self, device: Optional[DeviceState]) -> Optional[List[int]]:
        """Return a copy of seed and state, read from `device` first if it is there and has moved on.

        Before the first run it is only the seed, or None without one.
        """
        if self.is_behind and device is not None:
            self._fetch(device)
        return None if self._words is None else list(self._words)

    def keep(self, words: Sequence[int]) -> None:
        """Let a copy of `words` replace what the device has; they reach it with the next `send`."""
        generator_state(words)
        self._words = list(words)
        self.is_behind = False

    def send(self, device: DeviceState) -> None:
        """Let the stream of `device` go on from the host's copy, if there is one."""
        words = self._words
        if words is None:
            return
        cpp_log("debug", f"Setting random seed to {words[0]}")
        if len(words) > 1:
            cpp_log("debug", "Setting RNG state")
        device.rng_state = generator_state(_words_of_process(words, self._options.Distributed.processId))

    def _fetch(self, device: DeviceState) -> None:
        cpp_log("debug", "Reading random seed")
        cpp_log("debug", "Reading RNG state")
        self.is_behind = False
        if device.rng_state is None:  # no operator has drawn a number yet
            device.rng_state = generator_state([self._seed])
        self._words = stream_words(self._seed, device.rng_state)

    @property
    def _seed(self) -> int:
        return self._options.random_seed if self._options.exists("random_seed") else 0


def _words_of_process(words: Sequence[int], process: int) -> Sequence[int]:
    """Return another seed for each process of a distributed program: its replicas must not all drop the same units."""
    is_seed_only = len(words) == 1
    return [(words[0] + process * _STREAM_DISTANCE) % 2**64] if is_seed_only and process else words
