"""Blocks of 3x3 convolutions that each end in pooling, and a perceptron with Dropout.

B = images, H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from typing import Any, List

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, VGGConfig

__all__ = ["VGG", "build"]


def build(variant: str = DEFAULT, **changes: Any) -> VGG:
    """Make the network; `changes` are fields of `VGGConfig`.

    >>> build("vgg16_small", num_classes=7)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 7])
    """
    return VGG(configure(VARIANTS, variant, changes))


class VGG(nn.Module):
    """images_BKHW -> logits_BC."""

    def __init__(self, config: VGGConfig) -> None:
        """Make the blocks and the classifier: He's normal weights for convolutions, LeCun's for the rest, no bias."""
        super().__init__()
        blocks, channels = [], config.in_channels
        for num_convolutions, after in zip(config.convolutions, config.channels):
            blocks.append(_block(channels, after, num_convolutions=num_convolutions))
            channels = after
        self.blocks = nn.Sequential(*blocks)
        num_features = channels * (config.image_size // 2 ** len(blocks)) ** 2
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(num_features, config.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, config.num_classes),
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0
                nn.init.normal_(module.weight, std=(gain / module.weight[0].numel()) ** 0.5)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type] # they all have one

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        logits: torch.Tensor = self.classifier(self.blocks(images))
        return logits


def _block(before: int, after: int, *, num_convolutions: int) -> nn.Sequential:
    layers: List[nn.Module] = []
    for _ in range(num_convolutions):
        layers += [nn.Conv2d(before, after, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
        before = after
    return nn.Sequential(*layers, nn.MaxPool2d(2))
