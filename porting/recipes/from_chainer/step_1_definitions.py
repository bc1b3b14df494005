"""Chainer's definitions where torch's defaults are others; nothing is lazy."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import nn

from porting.recipes.from_chainer.workload import join_layers, load_digits, measure_accuracy, print_result


def make_model() -> nn.Sequential:
    """Make the network with Chainer's definitions."""
    return join_layers(
        nn.BatchNorm2d(8, eps=2e-5),
        lambda: nn.MaxPool2d(3, stride=2, ceil_mode=True),
        lambda: nn.Linear(16 * 4 * 4, 64),
    )


def train(num_steps: int) -> List[float]:
    """Return the losses of `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of other digits that are recognised afterwards."""
    torch.manual_seed(0)
    _train_set, loader, test_set = load_digits(num_steps)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    losses: List[float] = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        return losses, measure_accuracy(model, test_set)


if __name__ == "__main__":
    print_result(*train_and_test(num_steps=60))
