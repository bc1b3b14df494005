"""Shared by all steps: digits, the perceptron, means over batches, and the command line."""

from __future__ import annotations

import argparse
from typing import Callable, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

from porting.data import digits, idx
from porting.models import mlp

BATCH_SIZE = 128
HEADER = "epoch   main/loss   test/loss   main/accuracy   test/accuracy"


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Draw digits to train with, 48 whole batches, and 1000 to test with; or read MNIST, if its folder is given."""
    if folder:
        parts = [idx.read_mnist(folder, "train"), idx.read_mnist(folder, "t10k")]
    else:
        parts = [digits.make_digits(48 * BATCH_SIZE, seed=0), digits.make_digits(1000, seed=1)]
    train_set, test_set = (TensorDataset(images.flatten(1), labels) for images, labels in parts)
    return train_set, test_set


def make_model() -> nn.Sequential:
    """Make the perceptron 784-100-100-10 with the initial weights of Chainer, LeCun's."""
    return mlp.build("mnist_small", lecun=True)


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share of labels that have the largest logit."""
    return (logits.argmax(dim=1) == labels).float().mean()


def weighted_means(rows: Sequence[Tuple[int, float, float]]) -> Tuple[float, ...]:
    """Average losses and accuracies of batches by their number of samples: rows of (number, loss, accuracy)."""
    # a batch of padding alone has no samples, and its mean loss is not a number
    counts, *columns = zip(*(row for row in rows if row[0]))
    return tuple(sum(n * value for n, value in zip(counts, column)) / sum(counts) for column in columns)


def main(train_and_log: Callable[..., Tuple[List[float], List[Tuple[float, ...]]]], description: Optional[str]) -> None:
    """Train on what the command line says, and print the log."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", metavar="FOLDER", help="MNIST's four files; without it digits are drawn")
    _losses, log = train_and_log(data=parser.parse_args().data)
    print(HEADER)
    for row in log:
        print("{:>5}{:>12.6f}{:>12.6f}{:>16.6f}{:>16.6f}".format(*row))
