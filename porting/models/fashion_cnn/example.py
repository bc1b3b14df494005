"""Random grey images with labels.

B = images, H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import FashionCNNConfig

__all__ = ["example_batch"]


def example_batch(config: FashionCNNConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_B1HW and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(FashionCNNConfig(), batch_size=3)]
    [(3, 1, 28, 28), (3,)]
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn((batch_size, 1, config.image_size, config.image_size), generator=generator)
    return images, torch.randint(config.num_classes, (batch_size,), generator=generator)
