"""Batch size 1: an optimizer step sums up the gradients of single events."""

from __future__ import annotations

from typing import List

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from porting.models import uresnet2d
from porting.recipes.cosmictagger.workload import BATCH_SIZE, Settings, Training, batches_of, main, make_parts, validate


def train(num_steps: int) -> List[float]:
    """Train for `num_steps` optimizer steps and return their losses."""
    return run(num_steps).losses


def run(num_steps: int, settings: Settings = Settings()) -> Training:
    """Train as `train` does, on what the settings say, and save the weights."""
    train_set, model, optimizer = make_parts(settings)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE)
    scheduler = LambdaLR(optimizer, uresnet2d.Schedule(steps_per_epoch=len(loader), peak_rate=0.01))
    losses: List[float] = []
    rates: List[float] = []
    for images, labels in batches_of(loader, num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        total = 0.0
        for image, label in zip(images.split(1), labels.split(1)):
            loss = uresnet2d.loss(model(image), uresnet2d.chunk_planes(label)) / BATCH_SIZE
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
        scheduler.step()
    if settings.checkpoint is not None:
        torch.save(model.state_dict(), settings.checkpoint)
    return Training(losses, rates, model)


if __name__ == "__main__":
    main(run, validate, __doc__)
