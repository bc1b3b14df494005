"""A recurrent language model: two LSTM layers whose state is an input and an output, for truncated backpropagation."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, RNNLanguageModelConfig
from .example import example_batch
from .loss import loss, perplexity
from .model import RNNLanguageModel, build

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "RNNLanguageModel",
    "RNNLanguageModelConfig",
    "build",
    "example_batch",
    "loss",
    "perplexity",
]
