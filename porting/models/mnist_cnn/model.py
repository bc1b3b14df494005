"""Two blocks of convolution, pooling and ReLU, and two linear layers.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, MNISTCNNConfig

__all__ = ["MNISTCNN", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> MNISTCNN:
    """Make the network; `changes` are fields of `MNISTCNNConfig`.

    >>> build("mnist_logits", image_size=12)(torch.zeros(2, 1, 12, 12)).shape
    torch.Size([2, 10])
    """
    return MNISTCNN(configure(VARIANTS, variant, changes))


class MNISTCNN(nn.Module):
    """images_B1HW -> probabilities_BC, or logits_BC without `double_softmax`.

    >>> round(MNISTCNN(MNISTCNNConfig())(torch.zeros(1, 1, 28, 28)).sum().item(), 4)
    1.0
    """

    def __init__(self, config: MNISTCNNConfig) -> None:
        """Make the layers, initialised as torch does."""
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
        scores: torch.Tensor = self.softmax(self.classifier(self.dropout(features)))
        return scores


class _Block(nn.Module):
    """A convolution of 3x3 pixels without padding, the maximum of 2x2, and ReLU."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, kernel_size=3)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.pool(self.convolution(x)))
