"""`porting.fit` is the loop: it shows its progress, and hands on the results of each call and each epoch."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_trainer.workload import BATCH_SIZE, Log, count_epochs, evaluate, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and the log of the epochs."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    test_loader = DataLoader(porting.FixedBatchDataset(test_set, BATCH_SIZE), batch_size=BATCH_SIZE)
    metrics = {"accuracy": masked_accuracy}
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, metrics=metrics)
    log = Log()

    def keep(returned: Any) -> None:
        _logits, loss, values = returned
        log.add(loss, values["accuracy"])

    def test(_epoch: int, _mean_loss: float) -> None:
        log.end_epoch(evaluate(ported, criterion, test_loader))

    porting.fit(ported, loader, count_epochs(num_steps, loader), after_call=keep, after_epoch=test)
    return log.losses(num_steps)


if __name__ == "__main__":
    main(train, __doc__)
