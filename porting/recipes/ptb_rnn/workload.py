"""All steps share this: the text in windows, the model, the loss of a window, the test, and the command line."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data.text import Vocabulary, continued_windows, make_markov_source, read_words
from porting.models import rnn_language_model
from porting.recipe_chain import Losses, predicting, read_command_line

NUM_TEXTS = 20
NUM_TEST_TEXTS = 5
LENGTH = 35
DROPOUT = 0.1


def load_text(path: str = "") -> Tuple[torch.Tensor, int, float]:
    """Return a text as tokens, the size of its vocabulary, and the least possible mean loss as far as it is known."""
    if path:
        words = read_words(path)
        vocabulary = Vocabulary.of(words)
        return vocabulary.numbers(words), len(vocabulary), math.nan
    source = make_markov_source(8, order=2, num_likely=2, seed=0)
    return source.sample(40_000, seed=1), source.num_words, source.entropy


def make_parts(path: str) -> Tuple[DataLoader, DataLoader, rnn_language_model.RNNLanguageModel, torch.optim.SGD, Any]:
    """Cut a text into windows, nine tenths to train with and the rest to test with; make two layers of LSTMs for it.

    Returns the loaders of both, in the order of the text, the model, its optimizer, and the schedule of its rate.
    """
    text, num_words, _entropy = load_text(path)
    cut = len(text) * 9 // 10
    train_set = TensorDataset(*continued_windows(text[:cut], batch_size=NUM_TEXTS, length=LENGTH))
    test_set = TensorDataset(*continued_windows(text[cut:], batch_size=NUM_TEST_TEXTS, length=LENGTH))
    # a generator of its own: each epoch draws from it, and Dropout from the one that all share
    loader = DataLoader(train_set, batch_size=NUM_TEXTS, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = rnn_language_model.build("small", vocabulary=num_words, width=64, dropout=DROPOUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    return loader, DataLoader(test_set, batch_size=NUM_TEST_TEXTS), model, optimizer, scheduler


def window_loss(outputs: Sequence[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    """Sum the loss over a window, as truncated backpropagation does; learning rate and norm are chosen for sums."""
    return LENGTH * rnn_language_model.loss(outputs, labels)


def test(
    run: Callable[..., Any], loader: torch.utils.data.DataLoader, state: Tuple[torch.Tensor, torch.Tensor]
) -> float:
    """Return the mean loss of `run`, which computes outputs, over a text that continues from window to window."""
    total, (hidden, cell) = 0.0, state
    with predicting(run):
        for tokens, labels in loader:
            outputs = run(tokens, hidden, cell)
            _logits, hidden, cell = outputs
            total += rnn_language_model.loss(outputs, labels).item()
    return total / len(loader)


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print loss and perplexity."""
    data = "a text with a sentence a line, as ptb.train.txt; without it one is made"
    arguments = read_command_line(description, data=data, steps=300)
    losses = train(arguments.steps, arguments.data)
    print(losses.fall)
    entropy = load_text(arguments.data)[2]
    least = "" if math.isnan(entropy) else f", the least possible {rnn_language_model.perplexity(entropy):.3f}"
    print(f"test perplexity {rnn_language_model.perplexity(losses.measured.test_loss):.3f}{least}")
