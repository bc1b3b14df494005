"""The device's own loader, and a compilation of its own before the loop."""

from __future__ import annotations

from typing import List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from tqdm import tqdm

import porting
from porting.recipes.mnist_loop.workload import BATCH_SIZE, PaddingLast, load_digits, main, make_model, measure_accuracy


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_epochs=-(-num_steps // 48))[0][:num_steps]


def train_and_test(num_epochs: int = 10, data: Optional[str] = None) -> Tuple[List[float], List[float]]:
    """Train; return the losses of all steps, and the accuracy of the test after each epoch."""
    torch.manual_seed(0)
    train_set, test_set = load_digits(data)
    order = RandomSampler(train_set, generator=torch.Generator().manual_seed(0))
    padded = porting.FixedBatchDataset(train_set, BATCH_SIZE)
    loader = DataLoader(padded, batch_size=BATCH_SIZE, sampler=PaddingLast(order, padded))
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    ported.compile(*train_set[:BATCH_SIZE])
    losses: List[float] = []
    accuracies: List[float] = []

    for _epoch in tqdm(range(num_epochs), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            output, loss = ported(images, labels)
            losses.append(loss.item())

        accuracies.append(measure_accuracy(model, test_set))
    return losses, accuracies


if __name__ == "__main__":
    main(train_and_test, __doc__)
