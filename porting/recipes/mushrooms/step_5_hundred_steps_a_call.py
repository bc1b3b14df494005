"""One call trains a hundred steps, whatever the length of an epoch."""

from __future__ import annotations

from typing import Iterable, Iterator

import torch
from torch.utils.data import DataLoader, Sampler

import porting
from porting.recipe_chain import Losses
from porting.recipes.mushrooms.workload import BATCH_SIZE, History, accuracy, main, make_parts


class EpochsInARow(Sampler[int]):
    """The order of several epochs, one after the other, of each as many samples as whole batches hold."""

    def __init__(self, order: Iterable[int], *, num_epochs: int, samples_per_epoch: int) -> None:
        self.order, self.num_epochs, self.samples_per_epoch = order, num_epochs, samples_per_epoch

    def __len__(self) -> int:
        """Count the samples of all epochs."""
        return self.num_epochs * self.samples_per_epoch

    def __iter__(self) -> Iterator[int]:
        """Yield the places of samples, in an order of its own for each epoch."""
        for _epoch in range(self.num_epochs):
            yield from list(self.order)[: self.samples_per_epoch]


def train(num_steps: int = 50 * 56, data: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and with them all losses and accuracies."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    epochs = EpochsInARow(loader.sampler, num_epochs=25, samples_per_epoch=56 * BATCH_SIZE)
    loader = DataLoader(loader.dataset, batch_size=BATCH_SIZE, sampler=epochs, drop_last=True)
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=100, output_mode="all")
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
