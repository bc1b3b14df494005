"""Probabilities from the device: a second graph, in eval mode, the same weights."""

from __future__ import annotations

from typing import List, Optional, Tuple

import torch
from torch import nn

import porting
from porting.models import lenet5
from porting.recipes.lenet5.workload import load_digits, main, make_loader


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, folder: Optional[str] = None) -> Tuple[List[float], torch.Tensor, torch.Tensor]:
    """Train as `train` does; return its losses, and of the test images the classes' probabilities and the labels."""
    torch.manual_seed(0)
    train_set, test_set = load_digits(folder)
    loader = make_loader(train_set)
    model, criterion = lenet5.build(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    infer = ported.inference()
    losses: List[float] = []
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())

    images, labels = test_set.tensors
    probabilities = infer(images)
    return losses[:num_steps], probabilities, labels


if __name__ == "__main__":
    main(train_and_test, __doc__)
