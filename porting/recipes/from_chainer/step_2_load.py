"""The weights of the snapshot, each link into its module."""

from __future__ import annotations

import sys
from typing import List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.adapters import load_chainer_npz
from porting.data.digits import make_digits
from porting.recipes.from_chainer.chainer_model import snapshot_file

SNAPSHOT: Optional[str] = None  # a stand-in; or a file, as the first argument
MODULES = {"conv1": "0", "bn1": "1", "conv2": "4", "fc3": "8", "fc4": "10"}


def make_model() -> nn.Sequential:
    """Write the network as it stands in the Chainer program: conv1, bn1, conv2, fc3, fc4."""
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5),
        nn.BatchNorm2d(8, eps=2e-5),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.Conv2d(8, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(num_steps: int) -> List[float]:
    """Return the losses of `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of other digits that are recognised afterwards."""
    torch.manual_seed(0)
    train_set, (images, labels) = TensorDataset(*make_digits(50 * num_steps, seed=0)), make_digits(500, seed=1)
    loader = DataLoader(train_set, batch_size=50)
    model, criterion = make_model(), nn.CrossEntropyLoss()
    load_chainer_npz(snapshot_file(SNAPSHOT), model, names=MODULES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    losses: List[float] = []
    for batch_images, batch_labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(batch_images), batch_labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        logits = model(images)
    return losses, (logits.argmax(dim=1) == labels).float().mean().item()


if __name__ == "__main__":
    SNAPSHOT = sys.argv[1] if len(sys.argv) > 1 else None
    losses, accuracy = train_and_test(num_steps=60)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
