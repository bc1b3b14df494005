"""What residual networks are made of, and the two definitions that are in use.

The networks of 50, 101 and 152 layers have the same weights in both and differ in where they lose resolution:

* `resnet50` and so on, as in torchvision: the stem's pooling has overlapping windows of 3 x 3, and a block that halves
  the image does so in its 3x3 convolution.
* `resnet50_chainer` and so on, as in Chainer's guide: the pooling has windows of 2 x 2 (a last, partial one counts,
  which is called `cover_all` there), and a block that halves the image does so in its first 1x1 convolution, as in the
  paper. BatchNorm adds 2e-5 to the variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Mapping, Tuple

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "ResNetConfig"]


@dataclass(frozen=True)
class ResNetConfig:
    """What a residual network is made of; the defaults are ResNet-18 for ImageNet.

    `blocks` counts the blocks of each of the four stages, which have `width`, 2, 4 and 8 x `width` channels, and four
    times as many between blocks that are a `bottleneck`. `stem_pool` is the width of the pooling windows, 3 or 2.
    `stride_in_1x1` moves the stride of a bottleneck from its 3x3 convolution into the 1x1 before. `norm_epsilon` is
    what BatchNorm adds to the variance. With `zero_init_last` the last BatchNorm of a block begins with a weight of 0,
    so that every block begins as its shortcut (Goyal et al. 2017, arXiv 1706.02677).
    `image_size` is what `example_batch` makes; the network takes any size.
    """

    blocks: Tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64
    num_classes: int = 1000
    in_channels: int = 3
    image_size: int = 224
    bottleneck: bool = False
    stem_pool: int = 3
    stride_in_1x1: bool = False
    norm_epsilon: float = 1e-5
    zero_init_last: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes below 1, other than four stages, and a pooling that is neither definition's."""
        check_positive(self)
        if len(self.blocks) != 4:
            raise ValueError(f"`blocks` is {self.blocks}; it counts the blocks of four stages")
        if self.stem_pool not in (2, 3):
            raise ValueError(f"`stem_pool` is {self.stem_pool}; it can be 3 (overlapping windows) or 2")


DEFAULT = "resnet18"

_LAYERS = {
    "resnet18": ResNetConfig(),
    "resnet34": ResNetConfig(blocks=(3, 4, 6, 3)),
    "resnet50": ResNetConfig(blocks=(3, 4, 6, 3), bottleneck=True),
    "resnet101": ResNetConfig(blocks=(3, 4, 23, 3), bottleneck=True),
    "resnet152": ResNetConfig(blocks=(3, 8, 36, 3), bottleneck=True),
}

VARIANTS: Mapping[str, ResNetConfig] = MappingProxyType(
    {
        **_LAYERS,
        **{
            f"{name}_chainer": replace(config, stem_pool=2, stride_in_1x1=True, norm_epsilon=2e-5)
            for name, config in _LAYERS.items()
            if config.bottleneck
        },
    }
)
"""By name: the number of layers, and whose definition where it is not torchvision's."""
