"""Plain PyTorch: train, test after each epoch, keep a log."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.recipe_chain import Losses
from porting.recipes.mnist_trainer.workload import (
    BATCH_SIZE,
    accuracy,
    count_epochs,
    load_digits,
    main,
    make_model,
    weighted_means,
)


def evaluate(model: nn.Module, criterion: nn.Module, loader: Any) -> Tuple[float, ...]:
    """Return mean loss and accuracy over all samples of `loader`."""
    model.eval()
    rows = []
    with torch.no_grad():
        for images, labels in loader:
            logits = model(images)
            rows.append((len(labels), criterion(logits, labels).item(), accuracy(logits, labels).item()))
    model.train()
    return weighted_means(rows)


def train(num_steps: Optional[int] = None, data: Optional[str] = None) -> Losses:
    """Train for ten epochs, or as many as `num_steps` needs; return the losses, and the log: a row for each epoch."""
    train_set, test_set = load_digits(data)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    test_loader = DataLoader(test_set, batch_size=BATCH_SIZE)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows: List[Tuple[int, float, float]] = []
    log = []

    for epoch in range(1, count_epochs(num_steps, train_set) + 1):
        first = len(rows)
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(images)
            loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()
            rows.append((BATCH_SIZE, loss.item(), accuracy(logits, labels).item()))
        ours, of_test = weighted_means(rows[first:]), evaluate(model, criterion, test_loader)
        log.append((epoch, ours[0], of_test[0], ours[1], of_test[1]))
    return Losses([loss for _count, loss, _accuracy in rows[:num_steps]], log=log)


if __name__ == "__main__":
    main(train, __doc__)
