"""Shared by all steps: digits, their loader, and the command line."""

from __future__ import annotations

import argparse
from typing import Callable, List, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data.digits import make_digits
from porting.data.idx import read_mnist


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Read MNIST from a folder, or draw digits: 2000 to train with and 500 to test with."""
    if folder is not None:
        return TensorDataset(*read_mnist(folder, "train")), TensorDataset(*read_mnist(folder, "t10k"))
    return TensorDataset(*make_digits(2000, seed=0)), TensorDataset(*make_digits(500, seed=1))


def make_loader(train_set: TensorDataset) -> DataLoader:
    """Make the loader of shuffled batches, in an order of its own."""
    return DataLoader(train_set, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))


def accuracy(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images whose most probable class is the right one."""
    return (probabilities.argmax(dim=1) == labels).float().mean().item()


def main(
    train_and_test: Callable[[int, Optional[str]], Tuple[List[float], torch.Tensor, torch.Tensor]],
    description: Optional[str],
) -> None:
    """Train as the command line says, and print how well digits are recognised and what the first are taken for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", metavar="FOLDER", help="with MNIST's four files; without it digits are drawn")
    parser.add_argument("--steps", type=int, default=300, help="how many optimizer steps to train")
    arguments = parser.parse_args()
    losses, probabilities, labels = train_and_test(arguments.steps, arguments.data)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy(probabilities, labels):.3f}")
    print("the first test images:")
    for row, label in zip(probabilities[:5], labels):
        print(f"  a {label}, taken for a {row.argmax()} with a probability of {row.max():.3f}")
