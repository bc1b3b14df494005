"""The convolutional network of PopTorch's MNIST tutorial, with its softmax before the cross-entropy."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, MNISTCNNConfig
from .example import example_batch
from .loss import loss
from .model import MNISTCNN, build

__all__ = ["DEFAULT", "MNISTCNN", "VARIANTS", "MNISTCNNConfig", "build", "example_batch", "loss"]
