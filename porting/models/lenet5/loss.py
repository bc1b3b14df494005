"""How wrong the logits of LeNet-5 are, which it returns in training only."""

from __future__ import annotations

from porting.models.image_classes import loss

__all__ = ["loss"]
