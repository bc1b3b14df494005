"""How wrong the scores of an image's class are.

B = images, C = classes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["loss"]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the images.

    >>> round(loss(torch.zeros(2, 1000), torch.tensor([3, 4])).item(), 4)
    6.9078
    """
    return F.cross_entropy(logits, labels)
