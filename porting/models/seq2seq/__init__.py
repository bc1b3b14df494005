"""Translation from sequence to sequence: one stack of LSTMs reads the source, another one writes the target."""

from __future__ import annotations

from .config import DEFAULT, VARIANTS, Seq2SeqConfig
from .example import example_batch
from .loss import loss
from .metrics import bleu, cut_at_end
from .model import Seq2Seq, build

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "Seq2Seq",
    "Seq2SeqConfig",
    "bleu",
    "build",
    "cut_at_end",
    "example_batch",
    "loss",
]
