"""All steps share this: the digits and the network."""

from __future__ import annotations

from typing import Tuple

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load_images() -> Tuple[TensorDataset, TensorDataset, DataLoader]:
    """Load handwritten digits of 8x8 pixels: 1440 to train with, 357 to test with, and the former's loader."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train_set, test_set = (TensorDataset(images[rows], labels[rows]) for rows in (order[:1440], order[1440:]))
    loader = DataLoader(train_set, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
    return train_set, test_set, loader


def make_model() -> nn.Module:
    """Make a small convolutional network with BatchNorm."""
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
        nn.Linear(32 * 4 * 4, 10),
    )
