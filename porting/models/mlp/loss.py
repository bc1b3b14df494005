"""How wrong a perceptron's logits are.

B = samples, C = classes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["loss"]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the samples; of logits_B1 and labels_B1 the binary one.

    >>> round(loss(torch.zeros(2, 1), torch.ones(2, 1)).item(), 4)
    0.6931
    """
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(logits, labels)
    return F.cross_entropy(logits, labels)
