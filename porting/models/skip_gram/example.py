"""Random contexts with a random word in their middle.

B = places in a text, C = contexts of a place.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import SkipGramConfig

__all__ = ["example_batch"]


def example_batch(config: SkipGramConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random contexts_BC, `window` words on either side, and as labels the centres_B.

    >>> from porting.models.skip_gram import VARIANTS
    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["small"], batch_size=4)]
    [(4, 6), (4,)]
    """
    generator = torch.Generator().manual_seed(seed)
    contexts = torch.randint(config.vocabulary, (batch_size, 2 * config.window), generator=generator)
    return contexts, torch.randint(config.vocabulary, (batch_size,), generator=generator)
