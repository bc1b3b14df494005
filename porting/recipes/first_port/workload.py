"""Shared by all steps: the digits, the network, and how well it recognises them."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


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


def make_loader(train_set: TensorDataset) -> DataLoader:
    """Make the loader of shuffled batches."""
    # a generator of its own, so that the order does not depend on how many random numbers Dropout has drawn
    return DataLoader(train_set, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))


def measure_accuracy(predict: Callable[[torch.Tensor], Any], test_set: TensorDataset) -> float:
    """Return the share of test images that `predict` gives the largest logit for the right digit."""
    images, labels = test_set.tensors
    return (predict(images).argmax(dim=1) == labels).float().mean().item()


def print_result(losses: Sequence[float], accuracy: float) -> None:
    """Print how well a training went."""
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
