"""Two convolutions, GroupNorm, and two linear layers that end in log-probabilities.

B = images, H and W = height and width in pixels, C = classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, FashionCNNConfig

__all__ = ["FashionCNN", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> FashionCNN:
    """Make the network; `changes` are fields of `FashionCNNConfig`.

    >>> build("small", num_classes=3)(torch.zeros(2, 1, 12, 12)).shape
    torch.Size([2, 3])
    """
    return FashionCNN(configure(VARIANTS, variant, changes))


class FashionCNN(nn.Module):
    """images_B1HW -> log_probabilities_BC.

    >>> FashionCNN(FashionCNNConfig()).hidden.in_features
    972
    """

    def __init__(self, config: FashionCNNConfig) -> None:
        """Make the layers, initialised as torch does."""
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
        log_probabilities: torch.Tensor = self.log_softmax(self.classifier(features))
        return log_probabilities
