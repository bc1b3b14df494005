"""The device's random stream in PopTorch's form, a list of integers: the seed, then the words of the state."""

from __future__ import annotations

from typing import List, Sequence

import torch

from .errors import createPoptorchError

__all__ = ["generator_state", "stream_words"]


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
