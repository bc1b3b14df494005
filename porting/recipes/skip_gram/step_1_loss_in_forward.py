"""The loss moves into `forward`; the loader is the device's."""

from __future__ import annotations

import argparse
from typing import List, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.text import Vocabulary, context_windows, make_topic_text, read_words
from porting.models import skip_gram

WINDOW = 3


def load_text(path: Optional[str] = None) -> Tuple[torch.Tensor, Vocabulary, torch.Tensor]:
    """Return a text as tokens, the words that they mean, and the topic of each word where it is known."""
    if path:
        words = read_words(path)
        vocabulary = Vocabulary.of(words)
        return vocabulary.numbers(words), vocabulary, torch.full((len(vocabulary),), -1)
    text = make_topic_text(40_006, num_topics=8, words_per_topic=8, num_common=16, seed=0)
    words_of_topics = [f"topic{topic}_{number}" for number, topic in enumerate(text.topics.tolist())]
    return text.tokens, Vocabulary(tuple(words_of_topics)), text.topics


def neighbours(vectors: torch.Tensor, vocabulary: Vocabulary, topics: torch.Tensor) -> str:
    """Say how well the vectors know which words belong together, or which words are near if nobody knows."""
    if (topics >= 0).any():
        return f"{skip_gram.topic_recovery(vectors, topics):.1%} of the nearest words are of the same topic"
    nearest = skip_gram.nearest_words(vectors, num_neighbours=3)[:5]
    return "\n".join(f"{vocabulary.words[word]}: {vocabulary.text(row)}" for word, row in enumerate(nearest.tolist()))


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_look(num_steps)[0]


def train_and_look(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], torch.Tensor]:
    """Train as `train` does; return its losses and the word vectors."""
    torch.manual_seed(0)
    tokens, vocabulary, _topics = load_text(path)
    dataset = TensorDataset(*context_windows(tokens, window=WINDOW))
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(dataset, batch_size=200, shuffle=True, drop_last=True, generator=generator)
    model = skip_gram.build("small", vocabulary=len(vocabulary), window=WINDOW)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ported = porting.to_ipu(model, skip_gram.loss, optimizer=optimizer)
    loader = ported.dataloader(loader)
    losses: List[float] = []
    while len(losses) < num_steps:
        for contexts, centres in loader:
            _logits, loss = ported(contexts, centres)
            losses.append(loss.item())
    return losses[:num_steps], model.embedding.weight.detach()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="a text with a sentence a line, as ptb.train.txt; without it one is made")
    path = arguments.parse_args().data
    losses, vectors = train_and_look(200, path)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(neighbours(vectors, *load_text(path)[1:]))
