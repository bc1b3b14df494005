"""All steps share this: digits, the perceptron, its optimizer, and the command line."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.data.idx import read_or_make_digits
from porting.models import mlp
from porting.recipe_chain import Losses, read_command_line

BATCH_SIZE = 64
NUM_STEPS = 100


def make_parts(data: str) -> Tuple[DataLoader, TensorDataset, nn.Module, nn.Module, torch.optim.Optimizer]:
    """Draw digits or read MNIST from the folder `data`; return batches, digits to test with, and the parts.

    An epoch of drawn digits is 20 batches of 64 and one of 20: the last one is ragged, as in most programs.
    """
    train_set, test_set = read_or_make_digits(data, num_train=20 * BATCH_SIZE + 20, num_test=500, is_flat=True)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, generator=order)
    torch.manual_seed(0)
    model = mlp.build("mnist_small")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    return loader, test_set, model, nn.CrossEntropyLoss(), optimizer


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print how well it went."""
    arguments: Any = read_command_line(description, data="MNIST's folder; without it digits are drawn", steps=NUM_STEPS)
    print(train(arguments.steps, arguments.data))
