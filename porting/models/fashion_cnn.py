"""Define the small convolutional network of PopTorch's Fashion-MNIST tutorial, with GroupNorm and log-probabilities.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from porting.models.family import check_images, configure, example_batch

__all__ = ["DEFAULT", "VARIANTS", "FashionCNN", "FashionCNNConfig", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class FashionCNNConfig:
    """The sizes of the network; images are square, `image_size` pixels wide."""

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 100

    def __post_init__(self) -> None:
        check_images(self, least=12)

    @property
    def features_size(self) -> int:
        """The width of the convolutions' output: 9 pixels for an image of 28."""
        return (self.image_size - 2) // 2 - 4


DEFAULT = "fashion_mnist"

VARIANTS: Mapping[str, FashionCNNConfig] = MappingProxyType(
    {"fashion_mnist": FashionCNNConfig(), "small": FashionCNNConfig(image_size=12, hidden=20)}
)
"""By name: clothes of 28 x 28 pixels, and a small one to try things with."""


def build(variant: str = DEFAULT, **changes: Any) -> FashionCNN:
    """Make the network; `changes` are fields of `FashionCNNConfig`."""
    return FashionCNN(configure(VARIANTS, variant, changes))


class FashionCNN(nn.Module):
    """images_B1HW -> log_probabilities_BC.

    >>> FashionCNN(FashionCNNConfig()).hidden.in_features
    972
    """

    def __init__(self, config: FashionCNNConfig) -> None:
        super().__init__()
        self.convolution_1 = nn.Conv2d(1, 5, kernel_size=3)
        self.pool = nn.MaxPool2d(2)
        self.convolution_2 = nn.Conv2d(5, 12, kernel_size=5)
        self.norm = nn.GroupNorm(3, 12)
        self.hidden = nn.Linear(12 * config.features_size**2, config.hidden)
        self.classifier = nn.Linear(config.hidden, config.num_classes)
        self.log_softmax = nn.LogSoftmax(dim=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        features = self.pool(torch.relu(self.convolution_1(images)))
        features = self.norm(torch.relu(self.convolution_2(features)))
        features = torch.relu(self.hidden(features.flatten(1)))
        return self.log_softmax(self.classifier(features))


def loss(log_probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of labels_B under log_probabilities_BC, the mean over the images.

    >>> round(loss(torch.full((2, 10), 0.1).log(), torch.tensor([3, 4])).item(), 4)
    2.3026
    """
    return F.nll_loss(log_probabilities, labels)
