"""An encoder-only transformer in the manner of BERT: blocks that see both sides, and a head for words or classes."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, BertConfig
from .example import example_batch
from .loss import loss
from .model import Bert, BertClassifier, BertMaskedLM, build

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "Bert",
    "BertClassifier",
    "BertConfig",
    "BertMaskedLM",
    "build",
    "example_batch",
    "loss",
]
