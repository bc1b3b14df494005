"""Weighted cross-entropy of the pixels of three planes, as for UResNet2D."""

from __future__ import annotations

from porting.models.uresnet2d.loss import loss

__all__ = ["loss"]
