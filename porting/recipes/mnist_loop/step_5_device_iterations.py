"""One call makes four optimizer steps."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

import porting
from porting.adapters import masked_accuracy
from porting.recipe_chain import Losses
from porting.recipes.mnist_loop.workload import BATCH_SIZE, PaddingLast, count_epochs, load_digits, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and each test's accuracy."""
    train_set, order, test_set = load_digits(data)
    # what divides the number of batches, 48 and MNIST's 469: a micro-batch of padding alone has no loss
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=7 if data else 4, output_mode="all")
    padded = porting.FixedBatchDataset(train_set, options.samples_per_call)
    loader = DataLoader(padded, batch_size=BATCH_SIZE, sampler=PaddingLast(order, padded))
    model, criterion, optimizer = make_parts()
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(loader)
    ported.compile(*train_set[: options.samples_per_call])
    infer = ported.inference()
    test_loader = ported.dataloader(porting.FixedBatchDataset(test_set, options.samples_per_call))
    losses, accuracies = Losses(), []

    for _epoch in tqdm(range(count_epochs(num_steps, train_set)), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            output, loss = ported(images, labels)
            losses.extend(loss.tolist())

        outputs, labels_of_all = zip(*((infer(images), labels) for images, labels in test_loader))
        accuracies.append(masked_accuracy(torch.cat(outputs), torch.cat(labels_of_all)).item())
    return Losses(losses[: num_steps or None], accuracies=accuracies)


if __name__ == "__main__":
    main(train, __doc__)
