"""A call makes eight steps; the device's loaders make its batches, and it is compiled before the first."""

from __future__ import annotations

from typing import Any

import torch

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_trainer.workload import BATCH_SIZE, Log, count_epochs, evaluate, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and the log of the epochs."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    num_epochs = count_epochs(num_steps, loader)
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=8, output_mode="all")
    padded = porting.FixedBatchDataset(test_set, options.samples_per_call)
    metrics = {"accuracy": masked_accuracy}
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, metrics=metrics, options=options)
    loader, test_loader = ported.dataloader(loader), ported.dataloader(padded)
    ported.compile(torch.zeros(options.samples_per_call, 784), torch.zeros(options.samples_per_call, dtype=torch.int64))
    log = Log()

    def keep(returned: Any) -> None:
        _logits, loss, values = returned
        log.add(loss, values["accuracy"])

    def test(_epoch: int, _mean_loss: float) -> None:
        log.end_epoch(evaluate(ported, criterion, test_loader))

    porting.fit(ported, loader, num_epochs, after_call=keep, after_epoch=test)
    return log.losses(num_steps)


if __name__ == "__main__":
    main(train, __doc__)
