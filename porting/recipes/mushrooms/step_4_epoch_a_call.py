"""One call trains an epoch: 56 steps, one after the other, on the device."""

from __future__ import annotations

import torch

import porting
from porting.recipe_chain import Losses
from porting.recipes.mushrooms.workload import BATCH_SIZE, History, accuracy, main, make_parts


def train(num_steps: int = 50 * 56, data: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and with them all losses and accuracies."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=56, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(loader)
    ported.compile(torch.zeros(options.samples_per_call, 22), torch.zeros(options.samples_per_call, 1))
    infer = ported.inference()
    history = History()
    while len(history.steps) < num_steps:
        for features, poisonous in loader:
            logits, loss = ported(features, poisonous)
            micro_batches = zip(logits.split(BATCH_SIZE), poisonous.split(BATCH_SIZE))
            history.steps.extend(zip(loss.tolist(), (accuracy(*micro_batch) for micro_batch in micro_batches)))
        history.test(infer, test_set, multiple_of=options.device_iterations)
    return Losses([loss for loss, _accuracy in history.steps[:num_steps]], history=history)


if __name__ == "__main__":
    main(train, __doc__)
