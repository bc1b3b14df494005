"""The sizes of the convolutional network's images."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "CNNConfig"]


@dataclass(frozen=True)
class CNNConfig:
    """The width of the square images, and the number of classes."""

    image_size: int = 28
    num_classes: int = 10

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and images that cannot be halved twice."""
        check_positive(self)
        if self.image_size % 4 or self.image_size < 4:
            raise ValueError(f"images of {self.image_size} x {self.image_size} pixels cannot be halved twice")


DEFAULT = "mnist"

VARIANTS: Mapping[str, CNNConfig] = MappingProxyType({"mnist": CNNConfig(), "digits": CNNConfig(image_size=8)})
"""By name: MNIST's digits of 28 x 28 pixels, and scikit-learn's of 8 x 8."""
