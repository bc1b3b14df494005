"""How wrong the scores of next tokens are.

B = sequences, T = tokens of a sequence, V = size of the vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["loss"]


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BTV with labels_BT, the mean over all tokens."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
