"""The loss moves into `forward`; groups and schedule go along."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Dict, Iterator, List

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.images import make_labelled_images
from porting.models import resnet


@dataclass(frozen=True)
class Setup:
    """A network and its training; the defaults are a narrow ResNet-50 for small images, which learns in a minute."""

    width: int = 8
    image_size: int = 32
    num_classes: int = 10
    num_images: int = 2048
    batch_size: int = 64
    num_epochs: int = 9
    base_rate: float = 0.4  # for a batch of 256


REAL = Setup(width=64, image_size=224, num_classes=1000, batch_size=256, num_epochs=90, base_rate=0.1)


@dataclass
class History:
    """Loss and learning rate of each optimizer step, and the share of test images recognised afterwards."""

    losses: List[float] = field(default_factory=list)
    rates: List[float] = field(default_factory=list)
    accuracy: float = 0.0


def load_images(setup: Setup, *, num_images: int, seed: int) -> TensorDataset:
    """Make textures with labels, and bring their pixels to a mean of about 0 and a deviation of about 1."""
    images, labels = make_labelled_images(num_images, num_classes=setup.num_classes, size=setup.image_size, seed=seed)
    return TensorDataset((images - 0.5) / 0.24, labels)


def make_groups(model: nn.Module) -> List[Dict[str, Any]]:
    """Make groups of parameters: weights that decay, and biases and all of BatchNorm, which do not."""
    parameters = list(model.parameters())
    return [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1], "weight_decay": 1e-4},
        {"params": [parameter for parameter in parameters if parameter.dim() == 1], "weight_decay": 0.0},
    ]


def rate_factor(epoch: float) -> float:
    """Rise from a tenth in 5 epochs of 90, and fall to a tenth after 30, 60 and 80."""
    return min(1.0, 0.1 + 0.9 * epoch / 5) * 0.1 ** sum(epoch >= mark for mark in (30, 60, 80))


def repeated(loader: Any) -> Iterator[Any]:
    """Yield the batches of epoch after epoch."""
    while True:
        yield from loader


def train(num_steps: int) -> List[float]:
    """Return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps).losses


def train_and_test(num_steps: int, setup: Setup = Setup()) -> History:
    """Train as `train` does; return losses, learning rates and the accuracy on images that were not trained on."""
    torch.manual_seed(0)
    train_set = load_images(setup, num_images=setup.num_images, seed=0)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, setup.batch_size, shuffle=True, drop_last=True, generator=order)
    epochs_per_step = 90 / setup.num_epochs / len(loader)
    model = resnet.build("resnet50", width=setup.width, num_classes=setup.num_classes, zero_init_last=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(make_groups(model), lr=setup.base_rate * setup.batch_size / 256, momentum=0.9)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    scheduler = ported.scheduler(LambdaLR(optimizer, lambda step: rate_factor(step * epochs_per_step)))
    history = History()
    for images, labels in islice(repeated(loader), num_steps):
        _logits, loss = ported(images, labels)
        history.losses.append(loss.item())
        history.rates.append(ported.optimizer.param_groups[0]["lr"])
        scheduler.step()

    images, labels = load_images(setup, num_images=min(256, setup.num_images), seed=1).tensors
    model.eval()
    with torch.no_grad():
        logits = model(images)
    history.accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--real", action="store_true", help="the full network: width 64, 224 x 224 pixels, 1000 classes"
    )
    parser.add_argument("--images", type=int, help="how many images to train with")
    parser.add_argument("--batch", type=int, help="how many images a batch has; the learning rate goes along")
    parser.add_argument("--steps", type=int, default=288, help="how many optimizer steps to train; 9 epochs by default")
    arguments = parser.parse_args()
    setup = REAL if arguments.real else Setup()
    setup = replace(setup, num_images=arguments.images or setup.num_images)
    setup = replace(setup, batch_size=arguments.batch or setup.batch_size)
    history = train_and_test(arguments.steps, setup)
    first, last, highest = history.losses[0], history.losses[-1], max(history.rates)
    print(f"loss {first:.4f} -> {last:.4f}, learning rate up to {highest:.4f}, test accuracy {history.accuracy:.3f}")
