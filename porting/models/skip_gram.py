"""Define skip-gram word vectors: they predict the words around a word, so that words in like contexts get near vectors.

B = places in a text, C = contexts of a place, H = width of a vector, V = size of the vocabulary, K = neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping, Tuple

import torch
from torch import nn

from porting.models.family import check_positive, configure

__all__ = [
    "DEFAULT",
    "VARIANTS",
    "SkipGram",
    "SkipGramConfig",
    "build",
    "example_batch",
    "loss",
    "nearest_words",
    "topic_recovery",
]


@dataclass(frozen=True)
class SkipGramConfig:
    """The sizes of a skip-gram model; `window` words on either side of the centre are its contexts."""

    vocabulary: int = 10_000
    width: int = 100
    window: int = 5

    def __post_init__(self) -> None:
        check_positive(self)


DEFAULT = "ptb"

VARIANTS: Mapping[str, SkipGramConfig] = MappingProxyType(
    {"ptb": SkipGramConfig(), "small": SkipGramConfig(vocabulary=80, width=16, window=3)}
)
"""By name: the one of Chainer's example for the Penn Treebank, and one that trains in seconds."""


def build(variant: str = DEFAULT, **changes: Any) -> SkipGram:
    """Make a skip-gram model; `changes` are fields of `SkipGramConfig`."""
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
        return self.output(self.embedding(contexts))


def example_batch(config: SkipGramConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random contexts_BC, `window` words on either side, and as labels the centres_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(VARIANTS["small"], batch_size=4)]
    [(4, 6), (4,)]
    """
    generator = torch.Generator().manual_seed(seed)
    contexts = torch.randint(config.vocabulary, (batch_size, 2 * config.window), generator=generator)
    return contexts, torch.randint(config.vocabulary, (batch_size,), generator=generator)


def loss(logits: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BCV with centres_B, the mean over all contexts: a full softmax, no sampled negatives."""
    num_contexts = logits.shape[1]
    labels = centres.unsqueeze(1).expand(-1, num_contexts)
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def nearest_words(vectors: torch.Tensor, *, num_neighbours: int) -> torch.Tensor:
    """Find for each word of vectors_VH those with the most similar direction: words_VK, the nearest first.

    >>> nearest_words(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), num_neighbours=1).flatten().tolist()
    [1, 0, 1]
    """
    directions = nn.functional.normalize(vectors.detach(), dim=1)
    similarity = directions @ directions.T
    similarity.fill_diagonal_(-torch.inf)
    return similarity.topk(num_neighbours, dim=1).indices


def topic_recovery(vectors: torch.Tensor, topics: torch.Tensor, *, num_neighbours: int = 3) -> float:
    """Measure how many of the nearest words have the same topic; topics_V is negative for words without one.

    >>> vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> topic_recovery(vectors, torch.tensor([0, 0, 1, 1]), num_neighbours=1)
    1.0
    """
    has_topic = topics >= 0
    known = topics[has_topic]
    neighbours = nearest_words(vectors[has_topic], num_neighbours=num_neighbours)
    return (known[neighbours] == known.unsqueeze(1)).float().mean().item()
