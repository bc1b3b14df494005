"""All steps share this: digits, their loader, and the command line."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.data.idx import read_or_make_digits
from porting.models import lenet5
from porting.recipe_chain import Losses, read_command_line


def make_parts(folder: str) -> Tuple[TensorDataset, DataLoader, lenet5.LeNet5, nn.Module, torch.optim.Adam]:
    """Read MNIST from a folder, or draw digits; make LeNet-5, its loss and its optimizer, always from the same seed.

    Returns the digits to test with first, and shuffled batches of the others.
    """
    train_set, test_set = read_or_make_digits(folder, num_train=2000, num_test=500)
    loader = DataLoader(train_set, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = lenet5.build()
    return test_set, loader, model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.004)


def accuracy(losses: Losses) -> float:
    """Return the share of images whose most probable class is the right one."""
    return (losses.measured.probabilities.argmax(dim=1) == losses.measured.labels).float().mean().item()


def main(train: Callable[[int, str], Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print how well digits are recognised, with the first answers."""
    data = "a folder with MNIST's four files; without it digits are drawn"
    arguments = read_command_line(description, data=data, steps=300)
    losses = train(arguments.steps, arguments.data)
    print(f"{losses}, test accuracy {accuracy(losses):.3f}")
    print("the first test images:")
    for row, label in zip(losses.measured.probabilities[:5], losses.measured.labels):
        print(f"  a {label}, taken for a {row.argmax()} with a probability of {row.max():.3f}")
