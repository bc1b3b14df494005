"""Weights stay in float32, and everything else is in halves: this is half precision."""

from __future__ import annotations

import porting
from porting.recipe_chain import Losses
from porting.recipes.fine_tune_bert import workload


def train(num_steps: int) -> Losses:
    """Train on 16 new sentences in each step; return the losses, and the share of other sentences understood."""
    train_set, test_set, loader = workload.load_sentences(num_steps)
    model, optimizer, scheduler = workload.make_parts()
    options = porting.PortOptions(micro_batch=8, accumulation=2, output_mode="all", precision="mixed")
    ported = porting.to_ipu(model, optimizer=optimizer, options=options)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    ported.compile(**next(iter(loader)))
    losses = Losses()
    for batch in loader:
        loss = ported(**batch).loss
        scheduler.step()
        losses.append(loss.mean().item())
    return Losses(losses, test_accuracy=workload.measure_accuracy(ported.inference(), test_set))


if __name__ == "__main__":
    print(train(num_steps=240))
