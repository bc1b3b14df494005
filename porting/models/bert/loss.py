"""How wrong the scores of masked words, or of classes, are.

B = sentences, T = tokens of a sentence, V = size of the vocabulary, C = classes.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["IGNORED", "loss"]

IGNORED = -100
"""The label of tokens that were not masked out, and of padding: what torch's losses ignore by default."""


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BTV with labels_BT, the mean over words that count; or of logits_BC with classes_B."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)
