"""How wrong the scores of a sequence's class are.

B = sequences, C = classes.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["loss"]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC, the mean over the sequences."""
    return nn.functional.cross_entropy(logits, labels)
