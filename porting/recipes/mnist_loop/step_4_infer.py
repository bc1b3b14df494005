"""The test runs on the device as well, in batches that are filled up."""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from tqdm import tqdm

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_loop.workload import BATCH_SIZE, PaddingLast, count_epochs, load_digits, main, make_model


def train(num_steps: Optional[int] = None, data: Optional[str] = None) -> Losses:
    """Train for ten epochs, or as many as `num_steps` needs; return the losses, and each test's accuracy."""
    train_set, test_set = load_digits(data)
    order = RandomSampler(train_set, generator=torch.Generator().manual_seed(0))
    padded = porting.FixedBatchDataset(train_set, BATCH_SIZE)
    loader = DataLoader(padded, batch_size=BATCH_SIZE, sampler=PaddingLast(order, padded))
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    ported.compile(*train_set[:BATCH_SIZE])
    infer = ported.inference()
    test_loader = ported.dataloader(porting.FixedBatchDataset(test_set, BATCH_SIZE), batch_size=BATCH_SIZE)
    losses = Losses()
    accuracies = []

    for _epoch in tqdm(range(count_epochs(num_steps, train_set)), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            output, loss = ported(images, labels)
            losses.append(loss.item())

        outputs, labels_of_all = zip(*((infer(images), labels) for images, labels in test_loader))
        accuracies.append(masked_accuracy(torch.cat(outputs), torch.cat(labels_of_all)).item())
    return Losses(losses[:num_steps], accuracies=accuracies)


if __name__ == "__main__":
    main(train, __doc__)
