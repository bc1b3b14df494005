"""Random grey images with labels."""

from __future__ import annotations

from porting.models.image_classes import example_batch

__all__ = ["example_batch"]
