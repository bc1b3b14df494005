"""Skip-gram word vectors: the words around a word predict it, so that words in the same company get near vectors."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, SkipGramConfig
from .example import example_batch
from .loss import loss
from .metrics import nearest_words, topic_recovery
from .model import SkipGram, build

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "SkipGram",
    "SkipGramConfig",
    "build",
    "example_batch",
    "loss",
    "nearest_words",
    "topic_recovery",
]
