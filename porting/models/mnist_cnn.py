"""Define the convolutional network of PopTorch's MNIST tutorial, with its softmax before the cross-entropy.

The loss takes no account of that softmax. A probability of 1 for the right one of ten classes, taken for a logit,
leaves:

>>> round(loss(torch.eye(10), torch.arange(10)).item(), 4)
1.4612

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

import torch
from torch import nn

from porting.models.family import check_images, configure, example_batch, loss

__all__ = ["DEFAULT", "MNISTCNN", "VARIANTS", "MNISTCNNConfig", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class MNISTCNNConfig:
    """The sizes of the network; images are square, `image_size` pixels wide.

    `double_softmax` ends the network in a softmax, although the cross-entropy has its own: probabilities are used as
    logits, and the loss stays above ln(e + 9) - 1 = 1.4612 for ten classes. The published accuracy of 96.85 %
    is that of this network, so it is the default; False gives logits.
    """

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 128
    dropout: float = 0.5
    double_softmax: bool = True

    def __post_init__(self) -> None:
        check_images(self, least=10)

    @property
    def features_size(self) -> int:
        """The width of the convolutions' output: 5 pixels for an image of 28."""
        return ((self.image_size - 2) // 2 - 2) // 2


DEFAULT = "mnist"

VARIANTS: Mapping[str, MNISTCNNConfig] = MappingProxyType(
    {"mnist": MNISTCNNConfig(), "mnist_logits": MNISTCNNConfig(double_softmax=False)}
)
"""By name: as published, and without the softmax."""


def build(variant: str = DEFAULT, **changes: Any) -> MNISTCNN:
    """Make the network; `changes` are fields of `MNISTCNNConfig`."""
    return MNISTCNN(configure(VARIANTS, variant, changes))


class MNISTCNN(nn.Module):
    """images_B1HW -> probabilities_BC, or logits_BC without `double_softmax`.

    >>> round(MNISTCNN(MNISTCNNConfig())(torch.zeros(1, 1, 28, 28)).sum().item(), 4)
    1.0
    """

    def __init__(self, config: MNISTCNNConfig) -> None:
        super().__init__()
        self.block_1 = _Block(1, 32)
        self.block_2 = _Block(32, 64)
        self.hidden = nn.Linear(64 * config.features_size**2, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden, config.num_classes)
        self.softmax = nn.Softmax(dim=1) if config.double_softmax else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        features = self.block_2(self.block_1(images)).flatten(1)
        features = torch.relu(self.hidden(features))
        return self.softmax(self.classifier(self.dropout(features)))


class _Block(nn.Module):
    """A convolution of 3x3 pixels without padding, the maximum of 2x2, and ReLU."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, kernel_size=3)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.pool(self.convolution(x)))
