"""Random tokens with those that follow them.

B = sequences, T = tokens of a sequence.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import GPTConfig

__all__ = ["example_batch"]


def example_batch(config: GPTConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random tokens_BT, and as labels_BT the tokens that follow each.

    >>> tokens, labels = example_batch(GPTConfig(length=5), batch_size=2)
    >>> bool((tokens[:, 1:] == labels[:, :-1]).all())
    True
    """
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(config.vocabulary, (batch_size, config.length + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
