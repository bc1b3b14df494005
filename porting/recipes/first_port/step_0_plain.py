"""A model, a DataLoader and a loop train in plain PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.first_port.workload import load_images, make_model


def train(num_steps: int) -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the share of test images recognised."""
    torch.manual_seed(0)
    train_set, test_set, loader = load_images()
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return Losses(losses[:num_steps], test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    print(train(num_steps=450))
