"""How wrong the scores of next tokens are.

B = texts, T = tokens of a window, V = size of the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

__all__ = ["loss", "perplexity"]


def loss(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats per token of the first output, logits_BTV, with labels_BT; the state has no loss."""
    logits = outputs[0]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def perplexity(nats_per_token: float) -> float:
    """Return between how many equally likely tokens a model with this loss is undecided; infinite beyond floats.

    >>> round(perplexity(math.log(50)), 9)
    50.0
    """
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf
