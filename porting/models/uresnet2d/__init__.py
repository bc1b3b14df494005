"""Define UResNet2D, a residual U-shaped network that segments three wire planes with one set of weights (CosmicTagger).

An encoder and a decoder of residual blocks with connections between their levels, after the network of the MicroBooNE
and SBND neutrino experiments (arXiv 2207.07735), with its losses, metrics and learning-rate schedule.
"""

from __future__ import annotations

from .config import DEFAULT, NUM_PLANES, VARIANTS, Schedule, UResNet2DConfig
from .loss import SCHEMES, loss
from .metrics import (
    METRICS,
    cosmic_iou,
    mean_iou,
    neutrino_iou,
    non_background_accuracy,
    plane_metrics,
    total_accuracy,
)
from .model import UResNet2D, build
from .planes import as_planes, chunk_planes, example_batch

__all__ = [
    "DEFAULT",
    "METRICS",
    "NUM_PLANES",
    "SCHEMES",
    "VARIANTS",
    "Schedule",
    "UResNet2D",
    "UResNet2DConfig",
    "as_planes",
    "build",
    "chunk_planes",
    "cosmic_iou",
    "example_batch",
    "loss",
    "mean_iou",
    "neutrino_iou",
    "non_background_accuracy",
    "plane_metrics",
    "total_accuracy",
]
