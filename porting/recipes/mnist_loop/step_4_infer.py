"""The test runs on the device as well, in batches that are filled up."""

from __future__ import annotations

import argparse
from typing import Iterator, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset
from tqdm import tqdm

import porting
from porting.adapters import masked_accuracy
from porting.data import digits, idx
from porting.models import mlp

BATCH_SIZE = 128
NUM_EPOCHS = 10


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Draw 6100 digits to train with and 1000 to test with; or read MNIST, if its folder is given."""
    if folder:
        parts = [idx.read_mnist(folder, "train"), idx.read_mnist(folder, "t10k")]
    else:
        parts = [digits.make_digits(6100, seed=0), digits.make_digits(1000, seed=1)]
    train_set, test_set = (TensorDataset(images.flatten(1), labels) for images, labels in parts)
    return train_set, test_set


def make_model() -> nn.Sequential:
    """Make the perceptron 784-100-100-10 with Chainer's initial weights, LeCun's: variance 1 / inputs, no bias."""
    model = mlp.build("mnist_small")
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)
    return model


class PaddingLast(Sampler[int]):
    """An order of a dataset's samples, and behind them those that fill it up: no batch but the last has padding."""

    def __init__(self, order: Sampler[int], padded: porting.FixedBatchDataset) -> None:
        self.order, self.padded = order, padded

    def __len__(self) -> int:
        """Count the samples, padding included."""
        return len(self.padded)

    def __iter__(self) -> Iterator[int]:
        """Yield the places of samples, and then those of the padding."""
        yield from self.order
        yield from range(self.padded.num_real, len(self.padded))


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_epochs=-(-num_steps // 48))[0][:num_steps]


def train_and_test(num_epochs: int = NUM_EPOCHS, data: Optional[str] = None) -> Tuple[List[float], List[float]]:
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
    infer = ported.inference()
    test_loader = ported.dataloader(porting.FixedBatchDataset(test_set, BATCH_SIZE), batch_size=BATCH_SIZE)
    losses: List[float] = []
    accuracies: List[float] = []

    for _epoch in tqdm(range(num_epochs), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            output, loss = ported(images, labels)
            losses.append(loss.item())

        outputs, labels_of_all = zip(*((infer(images), labels) for images, labels in test_loader))
        accuracies.append(masked_accuracy(torch.cat(outputs), torch.cat(labels_of_all)).item())
    return losses, accuracies


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="MNIST's four files; without it digits are drawn")
    losses, accuracies = train_and_test(data=parser.parse_args().data)
    num_steps = len(losses) // len(accuracies)
    for epoch, accuracy in enumerate(accuracies):
        loss = sum(losses[epoch * num_steps :][:num_steps]) / num_steps
        print(f"epoch {epoch + 1:>2}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
