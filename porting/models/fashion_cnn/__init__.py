"""The small convolutional network of PopTorch's Fashion-MNIST tutorial, with GroupNorm and log-probabilities."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, FashionCNNConfig
from .example import example_batch
from .loss import loss
from .model import FashionCNN, build

__all__ = ["DEFAULT", "VARIANTS", "FashionCNN", "FashionCNNConfig", "build", "example_batch", "loss"]
