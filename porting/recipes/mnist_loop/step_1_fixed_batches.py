"""All batches have one size: the last one is filled up with samples whose label the loss ignores."""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from tqdm import tqdm

import porting
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.mnist_loop.workload import BATCH_SIZE, PaddingLast, count_epochs, load_digits, main, make_model


def train(num_steps: Optional[int] = None, data: Optional[str] = None) -> Losses:
    """Train for ten epochs, or as many as `num_steps` needs; return the losses, and each test's accuracy."""
    train_set, test_set = load_digits(data)
    order = RandomSampler(train_set, generator=torch.Generator().manual_seed(0))
    padded = porting.FixedBatchDataset(train_set, BATCH_SIZE)
    loader = DataLoader(padded, batch_size=BATCH_SIZE, sampler=PaddingLast(order, padded))
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = Losses()
    accuracies = []

    for _epoch in tqdm(range(count_epochs(num_steps, train_set)), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            optimizer.zero_grad()
            output = model(images)
            loss = criterion(output, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

        with torch.no_grad():
            accuracies.append(measure_accuracy(model, test_set))
    return Losses(losses[:num_steps], accuracies=accuracies)


if __name__ == "__main__":
    main(train, __doc__)
