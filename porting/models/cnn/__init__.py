"""A convolutional network for small grey images, with BatchNorm and Dropout: what the benchmark suite trains."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, CNNConfig
from .example import example_batch
from .loss import loss
from .model import build, make_cnn

__all__ = ["DEFAULT", "VARIANTS", "CNNConfig", "build", "example_batch", "loss", "make_cnn"]
