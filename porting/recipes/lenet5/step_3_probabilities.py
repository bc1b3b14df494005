"""Probabilities from the device: a second graph, in eval mode, the same weights."""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn

import porting
from porting.models import lenet5
from porting.recipe_chain import Losses
from porting.recipes.lenet5.workload import load_digits, main


def train(num_steps: int, folder: Optional[str] = None) -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the test images' probabilities and labels."""
    torch.manual_seed(0)
    test_set, loader = load_digits(folder)
    model, criterion = lenet5.build(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    infer = ported.inference()
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())

    images, labels = test_set.tensors
    probabilities = infer(images)
    return Losses(losses[:num_steps], probabilities=probabilities, labels=labels)


if __name__ == "__main__":
    main(train, __doc__)
