"""Classifiers of sequences with a long short-term memory: torch's own layer, or a cell unrolled by hand."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, RecurrentConfig
from .example import example_batch
from .loss import loss
from .model import LSTMClassifier, UnrolledLSTMClassifier, build

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "LSTMClassifier",
    "RecurrentConfig",
    "UnrolledLSTMClassifier",
    "build",
    "example_batch",
    "loss",
]
