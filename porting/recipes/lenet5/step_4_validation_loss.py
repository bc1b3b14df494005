"""A validation loss after each epoch: no mode is switched, no weight changes."""

from __future__ import annotations

import argparse
from typing import List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.digits import make_digits
from porting.data.idx import read_mnist
from porting.models import lenet5


def load_digits(folder: Optional[str]) -> Tuple[TensorDataset, TensorDataset]:
    """Read MNIST from a folder, or draw digits: 2000 to train with and 500 to test with."""
    if folder is not None:
        return TensorDataset(*read_mnist(folder, "train")), TensorDataset(*read_mnist(folder, "t10k"))
    return TensorDataset(*make_digits(2000, seed=0)), TensorDataset(*make_digits(500, seed=1))


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, folder: Optional[str] = None) -> Tuple[List[float], torch.Tensor, torch.Tensor]:
    """Train as `train` does and say each epoch's validation loss; return what step 3's does."""
    torch.manual_seed(0)
    train_set, test_set = load_digits(folder)
    loader = DataLoader(train_set, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))
    model, criterion = lenet5.build(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    infer = ported.inference()
    losses: List[float] = []
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())
        images, labels = test_set.tensors
        probabilities = infer(images)
        print(f"after {len(losses)} steps the validation loss is {validation_loss(probabilities, labels):.4f}")
    return losses[:num_steps], probabilities, labels


def validation_loss(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the cross-entropy of probabilities; `nn.CrossEntropyLoss` would take them for logits."""
    return nn.functional.nll_loss(probabilities.log(), labels).item()


def accuracy(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images whose most probable class is the right one."""
    return (probabilities.argmax(dim=1) == labels).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="with MNIST's four files; without it digits are drawn")
    parser.add_argument("--steps", type=int, default=300, help="how many optimizer steps to train")
    arguments = parser.parse_args()
    losses, probabilities, labels = train_and_test(arguments.steps, arguments.data)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy(probabilities, labels):.3f}")
    print("the first test images:")
    for row, label in zip(probabilities[:5], labels):
        print(f"  a {label}, taken for a {row.argmax()} with a probability of {row.max():.3f}")
