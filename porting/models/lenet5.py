"""Define LeNet-5 for handwritten digits (LeCun et al. 1998): sigmoids, logits in training, probabilities in evaluation.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

import torch
from torch import nn

from porting.models.family import check_images, configure, draw_weights, example_batch, lecun_deviation, loss

__all__ = ["DEFAULT", "VARIANTS", "LeNet5", "LeNet5Config", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class LeNet5Config:
    """The sizes of LeNet-5; images are square, `image_size` pixels wide."""

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 84

    def __post_init__(self) -> None:
        check_images(self, least=28)

    @property
    def features_size(self) -> int:
        """The width of the convolutions' output: a single pixel for an image of 28."""
        return ((self.image_size - 4) // 2 - 4) // 2 - 3


DEFAULT = "mnist"

VARIANTS: Mapping[str, LeNet5Config] = MappingProxyType(
    {"mnist": LeNet5Config(), "padded": LeNet5Config(image_size=32)}
)
"""By name: for MNIST's 28 x 28 pixels, and for the 32 x 32 of the paper, who padded them."""


def build(variant: str = DEFAULT, **changes: Any) -> LeNet5:
    """Make the network; `changes` are fields of `LeNet5Config`."""
    return LeNet5(configure(VARIANTS, variant, changes))


class LeNet5(nn.Module):
    """images_B1HW -> logits_BC in training, probabilities_BC in evaluation.

    The loss takes logits, and users of the network want probabilities: so the mode decides. On a device these are two
    graphs, one for training and one for inference.

    >>> round(LeNet5(LeNet5Config()).eval()(torch.zeros(1, 1, 28, 28)).sum().item(), 4)
    1.0
    """

    def __init__(self, config: LeNet5Config) -> None:
        """Make the layers, with LeCun's normal weights and no bias to begin with."""
        super().__init__()
        self.convolution_1 = nn.Conv2d(1, 6, kernel_size=5)
        self.convolution_2 = nn.Conv2d(6, 16, kernel_size=5)
        self.convolution_3 = nn.Conv2d(16, 120, kernel_size=4)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(120 * config.features_size**2, config.hidden)
        self.classifier = nn.Linear(config.hidden, config.num_classes)
        draw_weights(self, lecun_deviation)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        features = self.pool(torch.sigmoid(self.convolution_1(images)))
        features = self.pool(torch.sigmoid(self.convolution_2(features)))
        features = torch.sigmoid(self.convolution_3(features))
        features = torch.sigmoid(self.hidden(features.flatten(1)))
        logits: torch.Tensor = self.classifier(features)
        return logits if self.training else torch.softmax(logits, dim=1)
