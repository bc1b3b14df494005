"""Random sequences with labels.

B = sequences, T = places of a sequence, F = features.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import RecurrentConfig

__all__ = ["example_batch"]


def example_batch(config: RecurrentConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random sequences_BTF and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(RecurrentConfig(), batch_size=2)]
    [(2, 32, 64), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    sequences = torch.randn((batch_size, config.length, config.num_features), generator=generator)
    return sequences, torch.randint(config.num_classes, (batch_size,), generator=generator)
