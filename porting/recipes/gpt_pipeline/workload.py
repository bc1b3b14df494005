"""Shared by all steps: the text, the transformer and its test."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Sequence, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data.text import make_markov_source
from porting.models import gpt

NUM_WORDS = 8
LENGTH = 16


def load_text() -> Tuple[TensorDataset, TensorDataset, float]:
    """Cut a text into windows to train with and to test with; return the least possible mean loss, too."""
    source = make_markov_source(NUM_WORDS, order=2, num_likely=2, seed=0)
    text = source.sample(LENGTH * 4_400 + 1, seed=1)
    tokens, labels = text[:-1].view(-1, LENGTH), text[1:].view(-1, LENGTH)
    return TensorDataset(tokens[400:], labels[400:]), TensorDataset(tokens[:400], labels[:400]), source.entropy


def make_model() -> gpt.GPT:
    """Make a transformer of four blocks, whose head uses the weight of the embedding again."""
    return gpt.build("small", num_layers=4, width=32, num_heads=4, length=LENGTH, vocabulary=NUM_WORDS)


def draw_batches(train_set: TensorDataset, num_steps: int) -> Iterator[Any]:
    """Draw `num_steps` batches of 40 windows, of one epoch after the other."""
    loader = DataLoader(train_set, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))
    return itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), num_steps)


def measure_loss(model: gpt.GPT, test_set: TensorDataset) -> float:
    """Return the mean loss on the text to test with, computed on the host."""
    tokens, labels = test_set.tensors
    model.eval()
    with torch.no_grad():
        return gpt.loss(model(tokens), labels).item()


def print_result(losses: Sequence[float], test_loss: float) -> None:
    """Print how well the text has been learnt, and how well it can be."""
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"test loss {test_loss:.4f}, the least possible {load_text()[2]:.4f}")
