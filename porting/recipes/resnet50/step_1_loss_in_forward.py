"""The loss moves into `forward`; groups and schedule go along."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import porting
from porting.recipe_chain import Losses, batches_of, measure_accuracy
from porting.recipes.resnet50 import workload
from porting.recipes.resnet50.workload import Setup


def train(num_steps: int, setup: Setup = Setup()) -> Losses:
    """Return losses and learning rates of `num_steps` steps, and the accuracy on images that were not trained on."""
    _train_set, loader, model = workload.make_parts(setup)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(workload.make_groups(model), lr=setup.base_rate * setup.batch_size / 256, momentum=0.9)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    scheduler = ported.scheduler(LambdaLR(optimizer, workload.plan_rate(setup, setup.batch_size)))
    losses, rates = Losses(), []
    for images, labels in batches_of(loader, num_steps):
        _logits, loss = ported(images, labels)
        losses.append(loss.item())
        rates.append(ported.optimizer.param_groups[0]["lr"])
        scheduler.step()

    accuracy = measure_accuracy(model, workload.load_test_images(setup))
    return Losses(losses, rates=rates, accuracy=accuracy)


if __name__ == "__main__":
    workload.main(train, __doc__, num_steps=288)
