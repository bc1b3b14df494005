"""Shared by all steps: digits, the network's layout, the test, and what is printed in the end."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.data.digits import make_digits

Digits = Tuple[torch.Tensor, torch.Tensor]


def join_layers(
    norm: nn.Module, make_pool: Callable[[], nn.Module], make_linear: Callable[[], nn.Module]
) -> nn.Sequential:
    """Write the network as it stands in the Chainer program: conv1, bn1, conv2, fc3, fc4."""
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5),
        norm,
        nn.ReLU(),
        make_pool(),
        nn.Conv2d(8, 16, kernel_size=5),
        nn.ReLU(),
        make_pool(),
        nn.Flatten(),
        make_linear(),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def load_digits(num_steps: int) -> Tuple[TensorDataset, DataLoader, Digits]:
    """Draw digits for `num_steps` steps, and others to test with; return the former, their loader, and the latter."""
    train_set = TensorDataset(*make_digits(50 * num_steps, seed=0))
    return train_set, DataLoader(train_set, batch_size=50), make_digits(500, seed=1)


def measure_accuracy(predict: Callable[[torch.Tensor], Any], test_set: Digits) -> float:
    """Return the share of digits for which `predict` gives the largest logit to the right class."""
    images, labels = test_set
    return (predict(images).argmax(dim=1) == labels).float().mean().item()


def print_result(losses: Sequence[float], accuracy: float) -> None:
    """Print how well a training went."""
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
