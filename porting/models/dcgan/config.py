"""The sizes of a generator and its discriminator, and the noise that the discriminator sees through."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "DCGANConfig"]


@dataclass(frozen=True)
class DCGANConfig:
    """Sizes of a pair of networks for colour images that are eight times `bottom` pixels wide and high.

    `hidden` random numbers become an image by way of `channels`, a multiple of 8, then a half, a quarter and an eighth
    of it; the discriminator goes the opposite way. In training it adds `noise`, a standard deviation, to its input and
    behind each convolution. `weight_scale` is the standard deviation of initial weights.

    `bias_before_norm` gives convolutions a bias where normalisation follows, as Chainer does. It is of no use:
    normalisation takes it away again, and its gradient is rounding noise.
    """

    hidden: int = 100
    bottom: int = 4
    channels: int = 512
    noise: float = 0.2
    weight_scale: float = 0.02
    bias_before_norm: bool = True

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and channels that have no eighth."""
        check_positive(self)
        if self.channels % 8:
            raise ValueError(f"`channels` is {self.channels}; it is a multiple of 8, since an eighth of it is needed")

    @property
    def image_size(self) -> int:
        """Height and width of the images in pixels: three doublings of `bottom`."""
        return 8 * self.bottom


DEFAULT = "chainer"

VARIANTS: Mapping[str, DCGANConfig] = MappingProxyType(
    {
        "chainer": DCGANConfig(),
        "small": DCGANConfig(hidden=32, channels=64, bias_before_norm=False),
    }
)
"""Chainer's example, for images of 32 x 32 pixels, and one of an eighth of its channels."""
