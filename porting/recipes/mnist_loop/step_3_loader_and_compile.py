"""The device's own loader makes the batches, and the model is compiled before the loop."""

from __future__ import annotations

from torch.utils.data import DataLoader
from tqdm import tqdm

import porting
from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.mnist_loop.workload import BATCH_SIZE, PaddingLast, count_epochs, load_digits, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and each test's accuracy."""
    train_set, order, test_set = load_digits(data)
    padded = porting.FixedBatchDataset(train_set, BATCH_SIZE)
    loader = DataLoader(padded, batch_size=BATCH_SIZE, sampler=PaddingLast(order, padded))
    model, criterion, optimizer = make_parts()
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    ported.compile(*train_set[:BATCH_SIZE])
    losses, accuracies = Losses(), []

    for _epoch in tqdm(range(count_epochs(num_steps, train_set)), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            output, loss = ported(images, labels)
            losses.append(loss.item())

        accuracies.append(measure_accuracy(model, test_set))
    return Losses(losses[: num_steps or None], accuracies=accuracies)


if __name__ == "__main__":
    main(train, __doc__)
