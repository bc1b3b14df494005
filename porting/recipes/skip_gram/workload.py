"""All steps share this: the text and its loader, what the vectors know, and the command line."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data.text import Vocabulary, context_windows, make_topic_text, read_words
from porting.models import skip_gram
from porting.recipe_chain import Losses, read_command_line


def load_text(path: str = "") -> Tuple[torch.Tensor, Vocabulary, torch.Tensor]:
    """Return a text as tokens, the words that they mean, and the topic of each word where it is known."""
    if path:
        words = read_words(path)
        vocabulary = Vocabulary.of(words)
        return vocabulary.numbers(words), vocabulary, torch.full((len(vocabulary),), -1)
    text = make_topic_text(40_006, num_topics=8, words_per_topic=8, num_common=16, seed=0)
    words_of_topics = [f"topic{topic}_{number}" for number, topic in enumerate(text.topics.tolist())]
    return text.tokens, Vocabulary(tuple(words_of_topics)), text.topics


def make_parts(path: str) -> Tuple[DataLoader, skip_gram.SkipGram, torch.optim.Adam]:
    """Make the loader of contexts and the words in their middle, in its own order, the model and its optimizer."""
    tokens, vocabulary, _topics = load_text(path)
    dataset = TensorDataset(*context_windows(tokens, window=3))
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(dataset, batch_size=200, shuffle=True, drop_last=True, generator=order)
    torch.manual_seed(0)
    model = skip_gram.build("small", vocabulary=len(vocabulary), window=3)
    return loader, model, torch.optim.Adam(model.parameters(), lr=0.01)


def describe_neighbours(vectors: torch.Tensor, vocabulary: Vocabulary, topics: torch.Tensor) -> str:
    """Describe how well the vectors group words by topic, or list near words where topics are unknown."""
    if (topics >= 0).any():
        return f"{skip_gram.topic_recovery(vectors, topics):.1%} of the nearest words are of the same topic"
    nearest = skip_gram.nearest_words(vectors, num_neighbours=3)[:5]
    return "\n".join(f"{vocabulary.words[word]}: {vocabulary.text(row)}" for word, row in enumerate(nearest.tolist()))


def main(train: Callable[[int, str], Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print losses and neighbours."""
    data = "a text with a sentence a line, as ptb.train.txt; without it one is made"
    path = read_command_line(description, data=data).data
    losses = train(200, path)
    print(losses)
    print(describe_neighbours(losses.measured.vectors, *load_text(path)[1:]))
