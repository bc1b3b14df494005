"""Shared by all steps: digits, the perceptron, means over batches, and the command line."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

from porting.data.idx import read_or_make_digits
from porting.models import mlp
from porting.recipe_chain import Losses, read_command_line

BATCH_SIZE = 128
HEADER = "epoch   main/loss   test/loss   main/accuracy   test/accuracy"


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Draw digits to train with, 48 whole batches, and 1000 to test with; or read MNIST, if its folder is given."""
    return read_or_make_digits(folder, num_train=48 * BATCH_SIZE, num_test=1000, is_flat=True)


def count_epochs(num_steps: Optional[int], train_set: TensorDataset) -> int:
    """Return how many epochs have `num_steps` steps, the last one perhaps more; ten if nobody asks for steps."""
    return 10 if num_steps is None else -(-num_steps // (len(train_set) // BATCH_SIZE))


def make_model() -> nn.Sequential:
    """Make the perceptron 784-100-100-10 with the initial weights of Chainer, LeCun's, from the same seed."""
    torch.manual_seed(0)
    return mlp.build("mnist_small", lecun=True)


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share of labels that have the largest logit."""
    return (logits.argmax(dim=1) == labels).float().mean()


def weighted_means(rows: Sequence[Tuple[int, float, float]]) -> Tuple[float, ...]:
    """Average losses and accuracies of batches by their number of samples: rows of (number, loss, accuracy)."""
    # a batch of padding alone has no samples, and its mean loss is not a number
    counts, *columns = zip(*(row for row in rows if row[0]))
    return tuple(sum(n * value for n, value in zip(counts, column)) / sum(counts) for column in columns)


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train on what the command line says, and print the log."""
    losses = train(data=read_command_line(description, data="MNIST's folder; without it digits are drawn").data)
    print(HEADER)
    for row in losses.measured.log:
        print("{:>5}{:>12.6f}{:>12.6f}{:>16.6f}{:>16.6f}".format(*row))
