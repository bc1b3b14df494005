"""Compiling gets its own moment, testing its own graph."""

from __future__ import annotations

from typing import List, Tuple

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting


def load_images() -> Tuple[TensorDataset, TensorDataset]:
    """Load 1797 handwritten digits of 8x8 pixels: 1440 to train with, 357 to test with."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train_rows, test_rows = order[:1440], order[1440:]
    return TensorDataset(images[train_rows], labels[train_rows]), TensorDataset(images[test_rows], labels[test_rows])


def make_model() -> nn.Sequential:
    """Make a small convolutional network with BatchNorm and Dropout."""
    # no bias before BatchNorm, which takes it away again: Adam would turn the rounding noise of its gradient into steps
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of test images recognised afterwards."""
    torch.manual_seed(0)
    train_set, test_set = load_images()
    # a generator of its own, so that the order does not depend on how many random numbers Dropout has drawn
    loader = DataLoader(train_set, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    ported.compile(*train_set[:32])
    losses: List[float] = []
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())

    images, labels = test_set.tensors
    logits = ported.inference()(images)
    return losses[:num_steps], (logits.argmax(dim=1) == labels).float().mean().item()


if __name__ == "__main__":
    losses, accuracy = train_and_test(num_steps=450)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
