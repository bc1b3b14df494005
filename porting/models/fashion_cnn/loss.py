"""How wrong the network's log-probabilities are.

B = images, C = classes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["loss"]


def loss(log_probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of labels_B under log_probabilities_BC, the mean over the images.

    >>> round(loss(torch.full((2, 10), 0.1).log(), torch.tensor([3, 4])).item(), 4)
    2.3026
    """
    return F.nll_loss(log_probabilities, labels)
