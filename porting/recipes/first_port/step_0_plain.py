"""Plain PyTorch: a model, a DataLoader and a loop."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import nn

from porting.recipes.first_port.workload import load_images, make_loader, make_model, measure_accuracy, print_result


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of test images recognised afterwards."""
    torch.manual_seed(0)
    train_set, test_set = load_images()
    loader = make_loader(train_set)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    losses: List[float] = []
    while len(losses) < num_steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        return losses[:num_steps], measure_accuracy(model, test_set)


if __name__ == "__main__":
    print_result(*train_and_test(num_steps=450))
