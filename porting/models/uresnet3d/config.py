"""What the network is made of: the choices of UResNet2D."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.uresnet2d.config import FULL_SIZE, UResNetConfig

__all__ = ["DEFAULT", "VARIANTS", "UResNet3DConfig"]


@dataclass(frozen=True)
class UResNet3DConfig(UResNetConfig):
    """What the network of three dimensions is made of.

    Kernels are as wide as said in the images, and of 1 plane everywhere but at the deepest level, where one of three
    planes joins them.
    """


DEFAULT = "uresnet3d"

VARIANTS: Mapping[str, UResNet3DConfig] = MappingProxyType(
    {"uresnet3d": UResNet3DConfig(), "uresnet3d_deep": UResNet3DConfig(depth=7, spatial_size=FULL_SIZE)}
)
"""By name: six levels, and seven."""
