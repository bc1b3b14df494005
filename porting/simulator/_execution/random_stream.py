"""The device's random stream in PopTorch's form, a list of integers: the seed, then the words of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence

import torch

from .._logging import cpp_log
from ..errors import createPoptorchError

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = ["generator_state", "keep_random_state", "random_state", "send_random_state", "stream_words"]

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


def random_state(executor: PoplarExecutor) -> Optional[List[int]]:
    """Return a copy of an executor's seed and state, read from the device if that ran since the last time.

    Before the first run it is only the seed, or None without one.
    """
    executor._require_compiled()
    if executor._host_rng_state_is_dirty and executor._is_attached:
        _fetch_random_state(executor)
    words = executor._cached_rng_state
    return None if words is None else list(words)


def keep_random_state(executor: PoplarExecutor, words: Sequence[int]) -> None:
    """Keep a copy of `words`, in the place of what the device has, and send them there if it is attached."""
    executor._require_compiled()
    generator_state(words)
    executor._cached_rng_state = list(words)
    executor._host_rng_state_is_dirty = False
    if executor._is_attached:
        send_random_state(executor)


def send_random_state(executor: PoplarExecutor) -> None:
    """Let the device's stream go on from the state that the executor keeps, if it keeps one."""
    words = executor._cached_rng_state
    if words is None:
        return
    cpp_log("debug", f"Setting random seed to {words[0]}")
    if len(words) > 1:
        cpp_log("debug", "Setting RNG state")
    own = _words_of_process(words, executor._options.Distributed.processId)
    executor._require_compiled().state.rng_state = generator_state(own)


def _words_of_process(words: Sequence[int], process: int) -> Sequence[int]:
    """Return another seed for each process of a distributed program: its replicas must not all drop the same units."""
    is_seed_only = len(words) == 1
    return [(words[0] + process * _STREAM_DISTANCE) % 2**64] if is_seed_only and process else words


def _fetch_random_state(executor: PoplarExecutor) -> None:
    device = executor._require_compiled().state
    cpp_log("debug", "Reading random seed")
    cpp_log("debug", "Reading RNG state")
    executor._host_rng_state_is_dirty = False
    seed = executor._options.random_seed if executor._options.exists("random_seed") else 0
    if device.rng_state is None:  # no operator has drawn a number yet
        device.rng_state = generator_state([seed])
    executor._cached_rng_state = stream_words(seed, device.rng_state)
