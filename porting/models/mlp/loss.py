"""How wrong a perceptron's logits are.

B = samples, C = classes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["loss"]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the samples; of logits_B1 and labels_B1 the binary one.

    The binary one is for labels that are 0.0 or 1.0. Whole numbers with a single logit are a ValueError: the
    cross-entropy of one class is 0, whatever the logit is.

    >>> round(loss(torch.zeros(2, 1), torch.ones(2, 1)).item(), 4)
    0.6931
    """
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(logits, labels)
    if logits.shape[-1] == 1:
        raise ValueError(f"the labels of a single logit are 0.0 and 1.0 in a column, not {labels.dtype}")
    return F.cross_entropy(logits, labels)
