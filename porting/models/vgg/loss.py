"""How wrong the scores of an image's class are."""

from __future__ import annotations

from porting.models.image_classes import loss

__all__ = ["loss"]
