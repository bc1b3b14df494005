"""Proof that a port trains what plain PyTorch trains: both, step by step, with every gradient."""

from __future__ import annotations

from porting.comparison import Difference
from porting.verify.compare import KINDS, KindDifferences, TrainingComparison, compare_training
from porting.verify.gradient_check import GradientCheck, check_backward, numerical_grad
from porting.verify.plain_training import PlainTraining

__all__ = [
    "KINDS",
    "Difference",
    "GradientCheck",
    "KindDifferences",
    "PlainTraining",
    "TrainingComparison",
    "check_backward",
    "compare_training",
    "numerical_grad",
]
