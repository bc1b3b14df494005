"""How wrong the convolutional network's logits are."""

from __future__ import annotations

from porting.models.image_classes import loss

__all__ = ["loss"]
