"""How badly each context predicts the word in the middle.

B = places in a text, C = contexts of a place, V = size of the vocabulary.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["loss"]


def loss(logits: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BCV with centres_B, the mean over all contexts: a full softmax, no sampled negatives."""
    num_contexts = logits.shape[1]
    labels = centres.unsqueeze(1).expand(-1, num_contexts)
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
