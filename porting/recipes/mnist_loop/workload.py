"""Shared by all steps: digits, the perceptron, its test on the host, and the command line."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import Sampler, TensorDataset

from porting.data import digits, idx
from porting.models import mlp

BATCH_SIZE = 128


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Draw 6100 digits to train with and 1000 to test with; or read MNIST, if its folder is given."""
    if folder:
        parts = [idx.read_mnist(folder, "train"), idx.read_mnist(folder, "t10k")]
    else:
        parts = [digits.make_digits(6100, seed=0), digits.make_digits(1000, seed=1)]
    train_set, test_set = (TensorDataset(images.flatten(1), labels) for images, labels in parts)
    return train_set, test_set


def make_model() -> nn.Sequential:
    """Make the perceptron 784-100-100-10 with the initial weights of Chainer, LeCun's."""
    return mlp.build("mnist_small", lecun=True)


def measure_accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    """Return the share of test digits that are recognised on the host."""
    images, labels = test_set.tensors
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


class PaddingLast(Sampler[int]):
    """An order of a dataset's samples, and behind them those that fill it up: no batch but the last has padding."""

    def __init__(self, order: Sampler[int], padded: Any) -> None:
        self.order, self.padded = order, padded

    def __len__(self) -> int:
        """Count the samples, padding included."""
        return len(self.padded)

    def __iter__(self) -> Iterator[int]:
        """Yield the places of samples, and then those of the padding."""
        yield from self.order
        yield from range(self.padded.num_real, len(self.padded))


def main(train_and_test: Callable[..., Tuple[List[float], List[float]]], description: Optional[str]) -> None:
    """Train on what the command line says, and print loss and accuracy of each epoch."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", metavar="FOLDER", help="MNIST's four files; without it digits are drawn")
    losses, accuracies = train_and_test(data=parser.parse_args().data)
    num_steps = len(losses) // len(accuracies)
    for epoch, accuracy in enumerate(accuracies):
        loss = sum(losses[epoch * num_steps :][:num_steps]) / num_steps
        print(f"epoch {epoch + 1:>2}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
