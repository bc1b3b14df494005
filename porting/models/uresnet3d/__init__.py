"""UResNet3D, the network of UResNet2D with the planes as a third dimension of its convolutions (CosmicTagger)."""

from __future__ import annotations

from porting.models.uresnet2d import METRICS, SCHEMES, as_planes, chunk_planes, plane_metrics

from .config import DEFAULT, VARIANTS, UResNet3DConfig
from .example import example_batch
from .loss import loss
from .model import UResNet3D, build

__all__ = [
    "DEFAULT",
    "METRICS",
    "SCHEMES",
    "VARIANTS",
    "UResNet3D",
    "UResNet3DConfig",
    "as_planes",
    "build",
    "chunk_planes",
    "example_batch",
    "loss",
    "plane_metrics",
]
