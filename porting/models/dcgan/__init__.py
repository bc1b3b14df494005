"""Images out of nothing: a generator makes them, and a discriminator learns to tell them from real ones."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, DCGANConfig
from .example import example_batch, make_hidden
from .loss import discriminator_loss, generator_loss, loss
from .model import DCGAN, Discriminator, Generator, Logits, ShiftNorm, build

__all__ = [
    "DCGAN",
    "DEFAULT",
    "VARIANTS",
    "DCGANConfig",
    "Discriminator",
    "Generator",
    "Logits",
    "ShiftNorm",
    "build",
    "discriminator_loss",
    "example_batch",
    "generator_loss",
    "loss",
    "make_hidden",
]
