"""Compile before the loop; measure the perplexity on the device."""

from __future__ import annotations

import argparse
import math
from typing import Any, List, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.text import Vocabulary, continued_windows, make_markov_source, read_words
from porting.models import rnn_language_model

NUM_TEXTS = 20
NUM_TEST_TEXTS = 5
LENGTH = 35
DROPOUT = 0.1


def load_text(path: Optional[str] = None) -> Tuple[torch.Tensor, int, float]:
    """Return a text as tokens, the size of its vocabulary, and the least possible mean loss as far as it is known."""
    if path:
        words = read_words(path)
        vocabulary = Vocabulary.of(words)
        return vocabulary.numbers(words), len(vocabulary), math.nan
    source = make_markov_source(8, order=2, num_likely=2, seed=0)
    return source.sample(40_000, seed=1), source.num_words, source.entropy


def make_windows(path: Optional[str] = None) -> Tuple[TensorDataset, TensorDataset, int, float]:
    """Cut nine tenths of a text into windows to train with, and the rest into windows to test with."""
    text, num_words, entropy = load_text(path)
    cut = len(text) * 9 // 10
    train_set = TensorDataset(*continued_windows(text[:cut], batch_size=NUM_TEXTS, length=LENGTH))
    test_set = TensorDataset(*continued_windows(text[cut:], batch_size=NUM_TEST_TEXTS, length=LENGTH))
    return train_set, test_set, num_words, entropy


def window_loss(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """Sum the loss over a window, as truncated backpropagation does: the learning rate and the norm are for that."""
    return LENGTH * rnn_language_model.loss(outputs, labels)


def test(run: Any, loader: Any, state: Tuple[torch.Tensor, torch.Tensor]) -> float:
    """Return the mean loss of `run`, which computes outputs, over a text that goes on from window to window."""
    total, (hidden, cell) = 0.0, state
    for tokens, labels in loader:
        outputs = run(tokens, hidden, cell)
        _logits, hidden, cell = outputs
        total += rnn_language_model.loss(outputs, labels).item()
    return total / len(loader)


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses per token of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], float, float]:
    """Train as `train` does; return its losses, the mean loss on the text to test with, and the least possible one."""
    torch.manual_seed(0)
    train_set, test_set, num_words, entropy = make_windows(path)
    # a generator of its own: each epoch draws from it, and Dropout from the one that all share
    loader = DataLoader(train_set, batch_size=NUM_TEXTS, generator=torch.Generator().manual_seed(0))
    test_loader = DataLoader(test_set, batch_size=NUM_TEST_TEXTS)
    model = rnn_language_model.build("small", vocabulary=num_words, width=64, dropout=DROPOUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler: Any = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    ported = porting.to_ipu(model, window_loss, optimizer=optimizer, max_grad_norm=5.0)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    test_loader = ported.dataloader(test_loader, training=False)
    tokens, labels = train_set[:NUM_TEXTS]
    ported.compile(tokens, *model.first_state(NUM_TEXTS), labels)
    losses: List[float] = []
    while len(losses) < num_steps:
        hidden, cell = model.first_state(NUM_TEXTS)
        for tokens, labels in loader:
            (_logits, hidden, cell), loss = ported(tokens, hidden, cell, labels)
            losses.append(loss.item() / LENGTH)
        scheduler.step()

    test_loss = test(ported.inference(), test_loader, model.first_state(NUM_TEST_TEXTS))
    return losses[:num_steps], test_loss, entropy


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="a text with a sentence a line, as ptb.train.txt; without it one is made")
    arguments.add_argument("--steps", type=int, default=300)
    parsed = arguments.parse_args()
    losses, test_loss, entropy = train_and_test(parsed.steps, parsed.data)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    least = "" if math.isnan(entropy) else f", the least possible {math.exp(entropy):.3f}"
    print(f"test perplexity {math.exp(test_loss):.3f}{least}")
