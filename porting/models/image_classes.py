"""Shared by networks that classify images: random images to try them with, and their loss.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from typing import Protocol, Tuple

import torch
from torch.nn import functional as F

__all__ = ["GreyImages", "example_batch", "loss"]


class GreyImages(Protocol):
    """A configuration for square grey images, `image_size` pixels wide, of `num_classes` classes."""

    @property
    def image_size(self) -> int:
        """Height and width in pixels."""

    @property
    def num_classes(self) -> int:
        """How many classes there are."""


def example_batch(config: GreyImages, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_B1HW and labels_B.

    >>> from porting.models.cnn import CNNConfig
    >>> [tuple(tensor.shape) for tensor in example_batch(CNNConfig(), batch_size=3)]
    [(3, 1, 28, 28), (3,)]
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn((batch_size, 1, config.image_size, config.image_size), generator=generator)
    return images, torch.randint(config.num_classes, (batch_size,), generator=generator)


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the images.

    >>> round(loss(torch.zeros(2, 10), torch.tensor([3, 4])).item(), 4)
    2.3026
    """
    return F.cross_entropy(logits, labels)
