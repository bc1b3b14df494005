"""Random hits on empty planes, as for UResNet2D."""

from __future__ import annotations

from porting.models.uresnet2d.example import example_batch

__all__ = ["example_batch"]
