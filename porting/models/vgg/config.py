"""What the network is made of; a narrow one is for small images."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, Tuple

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "VGGConfig"]


@dataclass(frozen=True)
class VGGConfig:
    """What the network is made of; the defaults are VGG-16 for ImageNet.

    `convolutions` counts those of each block, `channels` are what they give; each block halves the image. The
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
        """Refuse sizes below 1, blocks without channels, and images that cannot be halved by every block."""
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
