"""`porting.fit` is the loop: it shows how far it is, and hands on what each call and each epoch gives."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_trainer.workload import (
    BATCH_SIZE,
    count_epochs,
    load_digits,
    main,
    make_model,
    weighted_means,
)


def evaluate(ported: porting.PortedModel, loader: Any) -> Tuple[float, ...]:
    """Return mean loss and accuracy over all samples of `loader`."""
    ported.eval()
    rows = []
    for images, labels in loader:
        _logits, loss, metrics = ported(images, labels)
        num_real = int((labels != -100).sum())
        rows.append((num_real, loss.item(), metrics["accuracy"].item()))
    ported.train()
    return weighted_means(rows)


def train(num_steps: Optional[int] = None, data: Optional[str] = None) -> Losses:
    """Train for ten epochs, or as many as `num_steps` needs; return the losses, and the log: a row for each epoch."""
    train_set, test_set = load_digits(data)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    test_loader = DataLoader(porting.FixedBatchDataset(test_set, BATCH_SIZE), batch_size=BATCH_SIZE)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    metrics = {"accuracy": masked_accuracy}
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, metrics=metrics)
    rows: List[Tuple[int, float, float]] = []
    log = []

    def keep(returned: Any) -> None:
        _logits, loss, values = returned
        rows.append((BATCH_SIZE, loss.item(), values["accuracy"].item()))

    def test(epoch: int, _mean_loss: float) -> None:
        ours, of_test = weighted_means(rows[-len(loader) :]), evaluate(ported, test_loader)
        log.append((epoch, ours[0], of_test[0], ours[1], of_test[1]))

    porting.fit(ported, loader, count_epochs(num_steps, train_set), after_call=keep, after_epoch=test)
    return Losses([loss for _count, loss, _accuracy in rows[:num_steps]], log=log)


if __name__ == "__main__":
    main(train, __doc__)
