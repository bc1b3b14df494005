"""What word vectors have learnt: which words they put next to each other.

V = size of the vocabulary, H = width of a vector, K = neighbours.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["nearest_words", "topic_recovery"]


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
