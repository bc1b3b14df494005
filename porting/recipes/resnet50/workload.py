"""All steps share this: textures, the network and the rules for its training, the test, and the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from porting.data.images import make_labelled_images
from porting.models import resnet
from porting.recipe_chain import Losses


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


def make_parts(setup: Setup) -> Tuple[TensorDataset, DataLoader, nn.Module, nn.Module]:
    """Make the images to train with, their loader, the network, always from the same seed, and its loss."""
    torch.manual_seed(0)
    train_set = load_images(setup, num_images=setup.num_images, seed=0)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, setup.batch_size, shuffle=True, drop_last=True, generator=order)
    model = resnet.build("resnet50", width=setup.width, num_classes=setup.num_classes, zero_init_last=True)
    return train_set, loader, model, nn.CrossEntropyLoss(label_smoothing=0.1)


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


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.SGD:
    """Make the optimizer of both groups."""
    return torch.optim.SGD(make_groups(model), lr=lr, momentum=0.9)


def make_schedule(optimizer: torch.optim.Optimizer, setup: Setup, batch_size: int) -> LambdaLR:
    """Make the schedule that multiplies the learning rate by `compute_rate_factor` before each optimizer step."""
    epochs_per_step = 90 / setup.num_epochs / (setup.num_images // batch_size)
    return LambdaLR(optimizer, lambda step: compute_rate_factor(step * epochs_per_step))


def compute_rate_factor(epoch: float) -> float:
    """Rise from a tenth in 5 epochs of 90, and fall to a tenth after 30, 60 and 80."""
    return min(1.0, 0.1 + 0.9 * epoch / 5) * 0.1 ** sum(epoch >= mark for mark in (30, 60, 80))


def load_test_images(setup: Setup) -> TensorDataset:
    """Make images that were not trained on."""
    return load_images(setup, num_images=min(256, setup.num_images), seed=1)


def main(train: Callable[[int, Setup], Losses], description: Optional[str], *, num_steps: int) -> None:
    """Train as the command line says, for `num_steps` by default, and print how well the network has learnt."""
    parser = argparse.ArgumentParser(description=description)
    what = "the full network: width 64, 224 x 224 pixels, 1000 classes"
    parser.add_argument("--real", action="store_true", help=what)
    parser.add_argument("--images", type=int, help="how many images to train with")
    parser.add_argument("--batch", type=int, help="how many images a batch has; the learning rate goes along")
    parser.add_argument("--steps", type=int, default=num_steps, help="how many optimizer steps; 9 epochs by default")
    arguments = parser.parse_args()
    setup = REAL if arguments.real else Setup()
    sizes = {"num_images": arguments.images or setup.num_images, "batch_size": arguments.batch or setup.batch_size}
    losses = train(arguments.steps, replace(setup, **sizes))
    highest, accuracy = max(losses.measured.rates), losses.measured.accuracy
    print(f"{losses.fall}, learning rate up to {highest:.4f}, test accuracy {accuracy:.3f}")
