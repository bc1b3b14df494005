"""Define very deep convolutional networks for images (Simonyan and Zisserman 2014, arXiv 1409.1556): VGG-16.

B = images, H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, List, Mapping, Tuple

import torch
from torch import nn

from porting.models.family import check_positive, configure, draw_weights, example_batch, loss

__all__ = ["DEFAULT", "VARIANTS", "VGG", "VGGConfig", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class VGGConfig:
    """The sizes of the network; the defaults are VGG-16 for ImageNet.

    `convolutions` counts those of each block, `channels` their outputs; each block halves the image. The
    classifier has two layers of `hidden` units. Images are square, `image_size` pixels wide: the classifier has weights
    for every place, so the size is part of the network.
    """

    convolutions: Tuple[int, ...] = (2, 2, 3, 3, 3)
    channels: Tuple[int, ...] = (64, 128, 256, 512, 512)
    hidden: int = 4096
    dropout: float = 0.5
    num_classes: int = 1000
    in_channels: int = 3
    image_size: int = 224

    def __post_init__(self) -> None:
        check_positive(self)
        if len(self.convolutions) != len(self.channels):
            raise ValueError(f"{len(self.convolutions)} blocks have {len(self.channels)} numbers of channels")
        if self.image_size % 2 ** len(self.channels):
            raise ValueError(
                f"images of {self.image_size} x {self.image_size} pixels cannot be halved {len(self.channels)} times"
            )


DEFAULT = "vgg16"

VARIANTS: Mapping[str, VGGConfig] = MappingProxyType(
    {
        "vgg16": VGGConfig(),
        "vgg16_small": VGGConfig(channels=(8, 16, 32, 64, 64), hidden=128, dropout=0.25, num_classes=10, image_size=32),
    }
)
"""By name: VGG-16, and the same layers at an eighth of the width for images of 32 x 32 pixels."""


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
            layers: List[nn.Module] = []
            for _ in range(num_convolutions):
                layers += [nn.Conv2d(channels, after, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = after
            blocks.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
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
        gains = {nn.Conv2d: 2.0, nn.Linear: 1.0}
        draw_weights(self, lambda layer: (gains[type(layer)] / layer.weight[0].numel()) ** 0.5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        return self.classifier(self.blocks(images))
