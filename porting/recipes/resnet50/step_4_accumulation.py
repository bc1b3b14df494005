"""Four micro-batches of 16 images make one step of 64: this is accumulation."""

from __future__ import annotations

import porting
from porting.recipe_chain import Losses, draw_batches, measure_accuracy
from porting.recipes.resnet50 import workload


def train(num_steps: int, setup: workload.Setup = workload.Setup()) -> Losses:
    """Return losses and learning rates of `num_steps` steps, and the accuracy on images that were not trained on."""
    train_set, loader, model, criterion = workload.make_parts(setup)
    optimizer = workload.make_optimizer(model, lr=setup.base_rate * setup.batch_size / 256)
    options = porting.PortOptions(micro_batch=setup.batch_size // 4, accumulation=4, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    scheduler = ported.scheduler(workload.make_schedule(optimizer, setup, setup.batch_size))
    loader = ported.dataloader(loader)
    ported.compile(*train_set[: setup.batch_size])
    losses, rates = Losses(), []
    for images, labels in draw_batches(loader, num_steps):
        _logits, loss = ported(images, labels)
        losses.append(loss.mean().item())
        rates.append(ported.optimizer.param_groups[0]["lr"])
        scheduler.step()

    accuracy = measure_accuracy(ported.inference(), workload.load_test_images(setup))
    return Losses(losses, rates=rates, accuracy=accuracy)


if __name__ == "__main__":
    workload.main(train, __doc__, num_steps=288)
