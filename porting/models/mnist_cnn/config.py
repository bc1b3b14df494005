"""The tutorial's network, with the softmax that it has in front of the loss, and without."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "MNISTCNNConfig"]


@dataclass(frozen=True)
class MNISTCNNConfig:
    """What the network is made of; images are square, `image_size` pixels wide.

    `double_softmax` ends the network in a softmax, although the cross-entropy takes one of its own: probabilities are
    taken for logits, and the loss stays above ln(e + 9) - 1 = 1.4612 for ten classes. The published accuracy of 96.85 %
    is that of this network, so it is the default; False gives logits.
    """

    image_size: int = 28
    num_classes: int = 10
    hidden: int = 128
    dropout: float = 0.5
    double_softmax: bool = True

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and images of which two convolutions and poolings leave nothing."""
        check_positive(self)
        if self.image_size < 10:
            raise ValueError(f"images of {self.image_size} x {self.image_size} pixels are too small: 10 are needed")

    @property
    def features_size(self) -> int:
        """The width of what the convolutions make of an image: 5 pixels of 28."""
        return ((self.image_size - 2) // 2 - 2) // 2


DEFAULT = "mnist"

VARIANTS: Mapping[str, MNISTCNNConfig] = MappingProxyType(
    {"mnist": MNISTCNNConfig(), "mnist_logits": MNISTCNNConfig(double_softmax=False)}
)
"""By name: as published, and without the softmax."""
