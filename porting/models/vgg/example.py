"""Random images with labels.

B = images, H and W = height and width in pixels, K = channels.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import VGGConfig

__all__ = ["example_batch"]


def example_batch(config: VGGConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_BKHW and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(VGGConfig(), batch_size=3)]
    [(3, 3, 224, 224), (3,)]
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn((batch_size, config.in_channels, config.image_size, config.image_size), generator=generator)
    return images, torch.randint(config.num_classes, (batch_size,), generator=generator)
