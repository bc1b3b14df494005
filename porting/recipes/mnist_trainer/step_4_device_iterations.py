"""Eight steps a call; the device's loaders make its batches, and it is compiled before the first."""

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
    rows: List[Tuple[int, float, float]] = []
    for images, labels in loader:
        _logits, loss, metrics = ported(images, labels)
        num_real = (labels.view(-1, BATCH_SIZE) != -100).sum(dim=1)
        rows.extend(zip(num_real.tolist(), loss.tolist(), metrics["accuracy"].tolist()))
    ported.train()
    return weighted_means(rows)


def train(num_steps: Optional[int] = None, data: Optional[str] = None) -> Losses:
    """Train for ten epochs, or as many as `num_steps` needs; return the losses, and the log: a row for each epoch."""
    train_set, test_set = load_digits(data)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=8, output_mode="all")
    padded = porting.FixedBatchDataset(test_set, options.samples_per_call)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    metrics = {"accuracy": masked_accuracy}
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, metrics=metrics, options=options)
    loader, test_loader = ported.dataloader(loader), ported.dataloader(padded)
    ported.compile(torch.zeros(options.samples_per_call, 784), torch.zeros(options.samples_per_call, dtype=torch.int64))
    rows: List[Tuple[int, float, float]] = []
    log = []

    def keep(returned: Any) -> None:
        _logits, loss, values = returned
        rows.extend(zip([BATCH_SIZE] * len(loss), loss.tolist(), values["accuracy"].tolist()))

    def test(epoch: int, _mean_loss: float) -> None:
        ours, of_test = weighted_means(rows[-len(loader) * 8 :]), evaluate(ported, test_loader)
        log.append((epoch, ours[0], of_test[0], ours[1], of_test[1]))

    porting.fit(ported, loader, count_epochs(num_steps, train_set), after_call=keep, after_epoch=test)
    return Losses([loss for _count, loss, _accuracy in rows[:num_steps]], log=log)


if __name__ == "__main__":
    main(train, __doc__)
