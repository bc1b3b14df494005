"""A decoder-only transformer in the manner of GPT-2: pre-norm blocks, learned positions, tied input and output."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, GPTConfig
from .example import example_batch
from .loss import loss
from .model import GPT, build

__all__ = ["DEFAULT", "GPT", "VARIANTS", "GPTConfig", "build", "example_batch", "loss"]
