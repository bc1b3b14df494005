"""Logits of torch are compared with those of Chainer's definitions: this is the forward check."""

from __future__ import annotations

import sys

import torch
from torch import nn

from porting.adapters import load_chainer_npz
from porting.recipe_chain import Losses, measure_accuracy, predicting
from porting.recipes.from_chainer.chainer_model import compute_logits, provide_snapshot
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
    images = test_set.tensors[0]
    with predicting(model):
        expected = compute_logits(images, provide_snapshot(snapshot))
        torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-4)
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
