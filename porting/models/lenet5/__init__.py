"""LeNet-5 for handwritten digits (LeCun et al. 1998): sigmoids, logits in training and probabilities in evaluation."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, LeNet5Config
from .example import example_batch
from .loss import loss
from .model import LeNet5, build

__all__ = ["DEFAULT", "VARIANTS", "LeNet5", "LeNet5Config", "build", "example_batch", "loss"]
