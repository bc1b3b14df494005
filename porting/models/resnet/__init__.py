"""Residual networks for images (He et al. 2015, arXiv 1512.03385): ResNet-18 to ResNet-152."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, ResNetConfig
from .example import example_batch
from .loss import loss
from .model import ResNet, build

__all__ = ["DEFAULT", "VARIANTS", "ResNet", "ResNetConfig", "build", "example_batch", "loss"]
