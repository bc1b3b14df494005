"""All steps share this: digits, the perceptron, the test, the log, and the command line."""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.adapters import masked_accuracy
from porting.data.idx import read_or_make_digits
from porting.models import mlp
from porting.recipe_chain import Losses, read_command_line

BATCH_SIZE = 128
HEADER = "epoch   main/loss   test/loss   main/accuracy   test/accuracy"


def make_parts(folder: str) -> Tuple[DataLoader, TensorDataset, nn.Sequential, nn.Module, torch.optim.SGD]:
    """Draw digits or read MNIST from its folder; return batches to train with, digits to test with, and the parts.

    Drawn are 48 whole batches, and 1000 to test with. The parts are the perceptron 784-100-100-10 with the initial
    weights of Chainer, LeCun's, from the same seed, its loss and its optimizer.
    """
    train_set, test_set = read_or_make_digits(folder, num_train=48 * BATCH_SIZE, num_test=1000, is_flat=True)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    torch.manual_seed(0)
    model = mlp.build("mnist_small", lecun=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return loader, test_set, model, nn.CrossEntropyLoss(), optimizer


def count_epochs(num_steps: int, loader: DataLoader) -> int:
    """Return how many epochs have `num_steps` steps, the last one perhaps more; ten for 0."""
    return -(-num_steps // len(loader)) or 10


class Log:
    """Rows of number, loss and accuracy of batches, and one of five numbers for each epoch."""

    def __init__(self) -> None:
        self.batches: List[Tuple[int, float, float]] = []
        self.epochs: List[Tuple[float, ...]] = []
        self._num_seen = 0

    def add(self, loss: torch.Tensor, accuracy: torch.Tensor) -> None:
        """Add a step, or the steps of a call."""
        values = zip(loss.reshape(-1).tolist(), accuracy.reshape(-1).tolist())
        self.batches.extend((BATCH_SIZE, *pair) for pair in values)

    def end_epoch(self, of_test: Tuple[float, ...]) -> None:
        """Add the means of an epoch next to those of its test."""
        ours = average_batches(self.batches[self._num_seen :])
        self._num_seen = len(self.batches)
        self.epochs.append((len(self.epochs) + 1, ours[0], of_test[0], ours[1], of_test[1]))

    def losses(self, num_steps: int) -> Losses:
        """Return the losses of `num_steps` steps, or of all for 0, with the log of epochs."""
        return Losses([loss for _count, loss, _accuracy in self.batches[: num_steps or None]], log=self.epochs)


def evaluate(model: nn.Module, criterion: nn.Module, loader: torch.utils.data.DataLoader) -> Tuple[float, ...]:
    """Return mean loss and accuracy over all samples of `loader`; a ported model computes them on its device."""
    model.eval()
    rows: List[Tuple[int, float, float]] = []
    for images, labels in loader:
        with torch.no_grad():
            if isinstance(model, porting.PortedModel):
                _logits, loss, metrics = model(images, labels)
                accuracy = metrics["accuracy"]
            else:
                logits = model(images)
                loss, accuracy = criterion(logits, labels), masked_accuracy(logits, labels)
        num_real = [int((part != -100).sum()) for part in labels.split(BATCH_SIZE)]
        rows.extend(zip(num_real, loss.reshape(-1).tolist(), accuracy.reshape(-1).tolist()))
    model.train()
    return average_batches(rows)


def average_batches(rows: Sequence[Tuple[int, float, float]]) -> Tuple[float, ...]:
    """Average losses and accuracies of batches by their number of samples: rows of (number, loss, accuracy)."""
    # a batch of padding alone has no samples, and its mean loss is not a number
    counts, *columns = zip(*(row for row in rows if row[0]))
    return tuple(sum(n * value for n, value in zip(counts, column)) / sum(counts) for column in columns)


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print the log."""
    losses = train(data=read_command_line(description, data="MNIST's folder; without it digits are drawn").data)
    print(HEADER)
    for row in losses.measured.log:
        print("{:>5}{:>12.6f}{:>12.6f}{:>16.6f}{:>16.6f}".format(*row))
