"""Very deep convolutional networks for images (Simonyan and Zisserman 2014, arXiv 1409.1556): VGG-16."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, VGGConfig
from .example import example_batch
from .loss import loss
from .model import VGG, build

__all__ = ["DEFAULT", "VARIANTS", "VGG", "VGGConfig", "build", "example_batch", "loss"]
