"""Accumulation: four micro-batches of 16 images make one step of 64."""

from __future__ import annotations

from typing import List

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import porting
from porting.recipes.resnet50 import workload
from porting.recipes.resnet50.workload import History, Setup


def train(num_steps: int) -> List[float]:
    """Return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps).losses


def train_and_test(num_steps: int, setup: Setup = Setup()) -> History:
    """Train as `train` does; return losses, learning rates and the accuracy on images that were not trained on."""
    train_set, loader, model = workload.make_parts(setup)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(workload.make_groups(model), lr=setup.base_rate * setup.batch_size / 256, momentum=0.9)
    options = porting.PortOptions(micro_batch=setup.batch_size // 4, accumulation=4, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    scheduler = ported.scheduler(LambdaLR(optimizer, workload.plan_rate(setup, setup.batch_size)))
    loader = ported.dataloader(loader)
    ported.compile(*train_set[: setup.batch_size])
    history = History()
    for images, labels in workload.batches_of(loader, num_steps):
        _logits, loss = ported(images, labels)
        history.losses.append(loss.mean().item())
        history.rates.append(ported.optimizer.param_groups[0]["lr"])
        scheduler.step()

    history.accuracy = workload.measure_accuracy(ported.inference(), setup)
    return history


if __name__ == "__main__":
    workload.main(train_and_test, __doc__, num_steps=288)
