"""The sizes of LeNet-5."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "LeNet5Config"]


@dataclass(frozen=True)
class LeNet5Config:
    """What LeNet-5 is made of; images are square, `image_size` pixels wide."""

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 84

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and images of which the convolutions leave nothing."""
        check_positive(self)
        if self.image_size < 28:
            raise ValueError(f"images of {self.image_size} x {self.image_size} pixels are too small: 28 are needed")

    @property
    def features_size(self) -> int:
        """The width of what the convolutions make of an image: a single pixel of 28."""
        return ((self.image_size - 4) // 2 - 4) // 2 - 3


DEFAULT = "mnist"

VARIANTS: Mapping[str, LeNet5Config] = MappingProxyType(
    {"mnist": LeNet5Config(), "padded": LeNet5Config(image_size=32)}
)
"""By name: for MNIST's 28 x 28 pixels, and for the 32 x 32 of the paper, who padded them."""
