"""The weights of the snapshot are loaded, each link into its module."""

from __future__ import annotations

import sys

import torch
from torch import nn

from porting.adapters import load_chainer_npz
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.from_chainer.chainer_model import provide_snapshot
from porting.recipes.from_chainer.workload import join_layers, load_digits

MODULES = {"conv1": "0", "bn1": "1", "conv2": "4", "fc3": "8", "fc4": "10"}


def make_model() -> nn.Sequential:
    """Make the network with Chainer's definitions."""
    pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    return join_layers(nn.BatchNorm2d(8, eps=2e-5), pool, lambda: nn.Linear(16 * 4 * 4, 64))


def train(num_steps: int, snapshot: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the share of other digits recognised afterwards."""
    loader, test_set = load_digits(num_steps)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    load_chainer_npz(provide_snapshot(snapshot), model, names=MODULES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    losses = Losses()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses, test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    print(train(60, *sys.argv[1:]))
