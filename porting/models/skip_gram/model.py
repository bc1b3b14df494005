"""The skip-gram model: a vector for each word, and one linear layer that scores all words.

B = places in a text, C = contexts of a place, H = width of a vector, V = size of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, SkipGramConfig

__all__ = ["SkipGram", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> SkipGram:
    """Make a skip-gram model; `changes` are fields of `SkipGramConfig`.

    >>> build("small").embedding
    Embedding(80, 16)
    """
    return SkipGram(configure(VARIANTS, variant, changes))


class SkipGram(nn.Module):
    """contexts_BC -> logits_BCV: each context by itself scores the words that may stand in the middle.

    >>> build("small")(torch.zeros(4, 6, dtype=torch.int64)).shape
    torch.Size([4, 6, 80])
    """

    def __init__(self, config: SkipGramConfig) -> None:
        """Make the vectors, uniform in -1/H to 1/H, and the output layer, zero: at first all words are as likely."""
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.output = nn.Linear(config.width, config.vocabulary)
        nn.init.uniform_(self.embedding.weight, -1 / config.width, 1 / config.width)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        """Score the words in the middle."""
        logits: torch.Tensor = self.output(self.embedding(contexts))
        return logits
