"""The training step, its batches and the test move to the device."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

import porting
from porting.recipe_chain import Losses
from porting.recipes.distributed.workload import count_recognised, draw_batches, load_images, main, make_parts

BATCH_SIZE = 64
LEARNING_RATE = 0.05


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, the weights, and how many test images are recognised."""
    train_set, test_set = load_images(2048, seed=0), load_images(500, seed=1)
    # the order of an epoch follows from its number, so that each process can draw it
    order: Any = DistributedSampler(train_set, num_replicas=1, rank=0)
    loader = DataLoader(train_set, BATCH_SIZE, sampler=order)
    model, criterion, optimizer = make_parts(LEARNING_RATE)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    losses = Losses()
    for images, labels in draw_batches(loader, order, num_steps):
        _logits, loss = ported(images, labels)
        losses.append(loss.item())

    num_recognised = count_recognised(ported.inference(), test_set)
    return Losses(losses, weights=ported.state_dict(), num_recognised=num_recognised, num_tested=len(test_set))


if __name__ == "__main__":
    main(train, __doc__)
