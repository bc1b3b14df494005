"""Define a convolutional network for small grey images, with BatchNorm and Dropout; the benchmark suite trains it.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

from torch import nn

from porting.models.family import check_positive, configure, example_batch, loss

__all__ = ["DEFAULT", "VARIANTS", "CNNConfig", "build", "example_batch", "loss", "make_cnn"]


@dataclass(frozen=True)
class CNNConfig:
    """The width of the square images, and the number of classes."""

    image_size: int = 28
    num_classes: int = 10

    def __post_init__(self) -> None:
        check_positive(self)
        if self.image_size % 4 or self.image_size < 4:
            raise ValueError(f"images of {self.image_size} x {self.image_size} pixels cannot be halved twice")


DEFAULT = "mnist"

VARIANTS: Mapping[str, CNNConfig] = MappingProxyType({"mnist": CNNConfig(), "digits": CNNConfig(image_size=8)})
"""By name: MNIST's digits of 28 x 28 pixels, and scikit-learn's of 8 x 8."""


def build(variant: str = DEFAULT, **changes: Any) -> nn.Sequential:
    """Make the network, images_B1HW -> logits_BC; `changes` are fields of `CNNConfig`.

    >>> import torch
    >>> build("digits", num_classes=3)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 3])
    """
    config = configure(VARIANTS, variant, changes)
    return make_cnn(image_size=config.image_size, num_classes=config.num_classes)


def make_cnn(*, image_size: int = 28, num_classes: int = 10) -> nn.Sequential:
    """Make two convolutions with BatchNorm, and two linear layers with Dropout: images_B1HW -> logits_BC.

    Images are square, `image_size` pixels wide, a multiple of 4.

    >>> import torch
    >>> make_cnn()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (image_size // 4) ** 2, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_classes),
    )
