"""`porting.fit` is the loop: it shows how far it is, and hands on what each call and each epoch gives."""

from __future__ import annotations

import argparse
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.adapters import masked_accuracy
from porting.data import digits, idx
from porting.models import mlp

BATCH_SIZE = 128
NUM_EPOCHS = 10
Row = Tuple[float, ...]
HEADER = "epoch   main/loss   test/loss   main/accuracy   test/accuracy"


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Draw digits to train with, 48 whole batches, and 1000 to test with; or read MNIST, if its folder is given."""
    if folder:
        parts = [idx.read_mnist(folder, "train"), idx.read_mnist(folder, "t10k")]
    else:
        parts = [digits.make_digits(48 * BATCH_SIZE, seed=0), digits.make_digits(1000, seed=1)]
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


def weighted_means(rows: Sequence[Tuple[int, float, float]]) -> Tuple[float, ...]:
    """Average losses and accuracies of batches by their number of samples: rows of (number, loss, accuracy)."""
    counts, *columns = zip(*(row for row in rows if row[0]))
    return tuple(sum(n * value for n, value in zip(counts, column)) / sum(counts) for column in columns)


def evaluate(ported: porting.PortedModel, loader: Any) -> Tuple[float, ...]:
    """Return mean loss and accuracy over all samples of `loader`."""
    ported.eval()
    rows = []
    for images, labels in loader:
        _logits, loss, metrics = ported(images, labels)
        num_real = int((labels != -100).sum())
        rows.append((num_real, loss.item(), metrics["accuracy"].item()))
    ported.train()
    return weighted_means(rows)


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_log(num_epochs=-(-num_steps // 48))[0][:num_steps]


def train_and_log(num_epochs: int = NUM_EPOCHS, data: Optional[str] = None) -> Tuple[List[float], List[Row]]:
    """Train; return the losses of all steps, and the log: a row for each epoch, as in the header."""
    torch.manual_seed(0)
    train_set, test_set = load_digits(data)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    test_loader = DataLoader(porting.FixedBatchDataset(test_set, BATCH_SIZE), batch_size=BATCH_SIZE)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    metrics = {"accuracy": masked_accuracy}
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, metrics=metrics)
    rows: List[Tuple[int, float, float]] = []
    log: List[Row] = []

    def keep(returned: Any) -> None:
        _logits, loss, values = returned
        rows.append((BATCH_SIZE, loss.item(), values["accuracy"].item()))

    def test(epoch: int, _mean_loss: float) -> None:
        ours, of_test = weighted_means(rows[-len(loader) :]), evaluate(ported, test_loader)
        log.append((epoch, ours[0], of_test[0], ours[1], of_test[1]))

    porting.fit(ported, loader, num_epochs, after_call=keep, after_epoch=test)
    return [loss for _count, loss, _accuracy in rows], log


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="MNIST's four files; without it digits are drawn")
    _losses, log = train_and_log(data=parser.parse_args().data)
    print(HEADER)
    for row in log:
        print("{:>5}{:>12.6f}{:>12.6f}{:>16.6f}{:>16.6f}".format(*row))
