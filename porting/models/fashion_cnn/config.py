"""The sizes of the network's images."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "FashionCNNConfig"]


@dataclass(frozen=True)
class FashionCNNConfig:
    """What the network is made of; images are square, `image_size` pixels wide."""

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 100

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and images of which the convolutions leave nothing."""
        check_positive(self)
        if self.image_size < 12:
            raise ValueError(f"images of {self.image_size} x {self.image_size} pixels are too small: 12 are needed")

    @property
    def features_size(self) -> int:
        """The width of what the convolutions make of an image: 9 pixels of 28."""
        return (self.image_size - 2) // 2 - 4


DEFAULT = "fashion_mnist"

VARIANTS: Mapping[str, FashionCNNConfig] = MappingProxyType(
    {"fashion_mnist": FashionCNNConfig(), "small": FashionCNNConfig(image_size=12, hidden=20)}
)
"""By name: clothes of 28 x 28 pixels, and a small one to try things with."""
