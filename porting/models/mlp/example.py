"""Random features with labels, in the shape that a perceptron takes.

B = samples, F = features.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import MLPConfig

__all__ = ["example_batch"]


def example_batch(config: MLPConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random features_BF and labels_B, or labels_B1 of 0.0 and 1.0 for a single logit.

    >>> [tuple(tensor.shape) for tensor in example_batch(MLPConfig((22, 44, 1)), batch_size=3)]
    [(3, 22), (3, 1)]
    """
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((batch_size, config.sizes[0]), generator=generator)
    if config.sizes[-1] == 1:
        return features, torch.randint(2, (batch_size, 1), generator=generator).float()
    return features, torch.randint(config.sizes[-1], (batch_size,), generator=generator)
