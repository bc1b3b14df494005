"""All steps share this: digits, and the network's layout."""

from __future__ import annotations

from typing import Callable, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.data.digits import make_digits


def join_layers(norm: nn.Module, pool: nn.Module, make_linear: Callable[[], nn.Module]) -> nn.Sequential:
    """Write the network as it stands in the Chainer program: conv1, bn1, conv2, fc3, fc4."""
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5),
        norm,
        nn.ReLU(),
        pool,
        nn.Conv2d(8, 16, kernel_size=5),
        nn.ReLU(),
        pool,
        nn.Flatten(),
        make_linear(),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def load_digits(num_steps: int) -> Tuple[DataLoader, TensorDataset]:
    """Draw digits for `num_steps` steps, and others to test with; return the loader of the former, and the latter.

    Random numbers drawn afterwards, such as weights, are always the same.
    """
    torch.manual_seed(0)
    train_set = TensorDataset(*make_digits(50 * num_steps, seed=0))
    return DataLoader(train_set, batch_size=50), TensorDataset(*make_digits(500, seed=1))
