"""The network is written anew in plain PyTorch, with torch's defaults and random weights."""

from __future__ import annotations

import torch
from torch import nn

from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.from_chainer.workload import join_layers, load_digits


def make_model() -> nn.Sequential:
    """Make the network with torch's defaults; the first linear layer gets its size from the first batch."""
    return join_layers(nn.BatchNorm2d(8), nn.MaxPool2d(3, stride=2), lambda: nn.LazyLinear(64))


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the share of other digits recognised afterwards."""
    loader, test_set = load_digits(num_steps)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    model(test_set[:1][0])  # the lazy layer learns its size
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
    print(train(num_steps=60))
