"""Random images with labels.

B = images, H and W = height and width in pixels, K = channels.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import ResNetConfig

__all__ = ["example_batch"]


def example_batch(config: ResNetConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_BKHW and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(ResNetConfig(image_size=32), batch_size=2)]
    [(2, 3, 32, 32), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, config.in_channels, config.image_size, config.image_size)
    labels = torch.randint(config.num_classes, (batch_size,), generator=generator)
    return torch.randn(shape, generator=generator), labels
