"""How wrong the network's scores are: its own softmax, if it has one, is not taken into account.

A probability of 1 for the right one of ten classes, taken for a logit, leaves:

>>> import torch
>>> round(loss(torch.eye(10), torch.arange(10)).item(), 4)
1.4612
"""

from __future__ import annotations

from porting.models.image_classes import loss

__all__ = ["loss"]
