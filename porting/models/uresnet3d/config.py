"""What the network is made of: the choices of UResNet2D."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Mapping, Tuple

from porting.models.uresnet2d.config import FULL_SIZE, check_config, spatial_size_at

__all__ = ["DEFAULT", "VARIANTS", "UResNet3DConfig"]


@dataclass(frozen=True)
class UResNet3DConfig:
    """What the network is made of; the fields are those of `UResNet2DConfig`.

    Kernels are as wide as said in the images, and of 1 plane everywhere but at the deepest level, where one of three
    planes joins them.
    """

    filters: int = 16
    growth: str = "additive"
    depth: int = 6
    blocks_per_level: int = 2
    blocks_deepest: int = 5
    blocks_final: int = 5
    bottleneck: int = 256
    kernel: int = 3
    first_kernel: int = 5
    deepest_kernel: int = 5
    residual: bool = True
    batch_norm: bool = True
    bias: bool = True
    downsampling: str = "max_pooling"
    upsampling: str = "interpolation"
    connections: str = "concat"
    block_concat: bool = False
    num_classes: int = 3
    spatial_size: Tuple[int, int] = (640, 1024)

    def __post_init__(self) -> None:
        """Refuse what cannot be built; see `check_config`."""
        check_config(self)

    def at_downsample(self, downsample: int) -> UResNet3DConfig:
        """Make this configuration for images whose sides were halved `downsample` times; see `spatial_size_at`."""
        return replace(self, spatial_size=spatial_size_at(downsample, depth=self.depth))


DEFAULT = "uresnet3d"

VARIANTS: Mapping[str, UResNet3DConfig] = MappingProxyType(
    {"uresnet3d": UResNet3DConfig(), "uresnet3d_deep": UResNet3DConfig(depth=7, spatial_size=FULL_SIZE)}
)
"""By name: six levels, and seven."""
