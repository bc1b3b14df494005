"""Proof that a port trains what plain PyTorch trains: both, step by step, with every gradient."""

from __future__ import annotations

from porting.comparison import Difference
from porting.verify.certificate import Certificate, Verdict
from porting.verify.compare import KINDS, KindDifferences, TrainingComparison, compare_training
from porting.verify.plain_training import PlainTraining

__all__ = [
    "KINDS",
    "Certificate",
    "Difference",
    "KindDifferences",
    "PlainTraining",
    "TrainingComparison",
    "Verdict",
    "compare_training",
]
