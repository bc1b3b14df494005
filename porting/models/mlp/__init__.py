"""A perceptron with hidden layers: linear layers with ReLU between them."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, MLPConfig
from .example import example_batch
from .loss import loss
from .model import build, make_mlp

__all__ = ["DEFAULT", "VARIANTS", "MLPConfig", "build", "example_batch", "loss", "make_mlp"]
