"""How wrong the scores of the target's tokens are.

B = sentences, T = tokens of a target, V = size of its vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["IGNORED", "loss"]

IGNORED = -100
"""The label of padding, which counts neither in the loss nor in its mean: what torch's losses ignore by default."""


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BTV with labels_BT in nats per token, the mean over the tokens that are no padding."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
