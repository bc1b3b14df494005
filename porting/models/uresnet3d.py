"""Define UResNet3D, the network of UResNet2D with the planes as a third dimension of its convolutions (CosmicTagger).

B = events, P = planes (3), H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Mapping

import torch
from torch import nn

from porting.models.family import configure
from porting.models.uresnet2d import METRICS, SCHEMES, as_planes, chunk_planes, example_batch, loss, plane_metrics
from porting.models.uresnet2d.config import FULL_SIZE, NUM_PLANES, UResNetConfig
from porting.models.uresnet2d.model import Block, join_levels, make_block_series, make_shrinking

__all__ = [
    "DEFAULT",
    "METRICS",
    "SCHEMES",
    "VARIANTS",
    "UResNet3D",
    "UResNet3DConfig",
    "as_planes",
    "build",
    "chunk_planes",
    "example_batch",
    "loss",
    "plane_metrics",
]


@dataclass(frozen=True)
class UResNet3DConfig(UResNetConfig):
    """The sizes of the network of three dimensions.

    Kernels are as wide as said in the images, and of 1 plane everywhere but at the deepest level, where one of three
    planes joins them.
    """


DEFAULT = "uresnet3d"

VARIANTS: Mapping[str, UResNet3DConfig] = MappingProxyType(
    {"uresnet3d": UResNet3DConfig(), "uresnet3d_deep": UResNet3DConfig(depth=7, spatial_size=FULL_SIZE)}
)
"""By name: six levels, and seven."""


def build(variant: str = DEFAULT, **changes: Any) -> UResNet3D:
    """Make the network of a variant; `changes` are fields of `UResNet3DConfig`.

    >>> sum(parameter.numel() for parameter in build(depth=2, filters=2, bottleneck=4).parameters())
    6533
    """
    return UResNet3D(configure(VARIANTS, variant, changes))


class UResNet3D(nn.Module):
    """images_BPHW -> logits_BPCHW: a score of each class for each pixel of each plane.

    Inside, the planes are the first of three spatial dimensions: x_BKPHW.

    >>> config = UResNet3DConfig(filters=2, depth=2, bottleneck=4, spatial_size=(8, 8))
    >>> UResNet3D(config)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 3, 8, 8])
    """

    def __init__(self, config: UResNet3DConfig) -> None:
        super().__init__()
        filters = config.filters
        self.first = _Block(config, 1, filters, kernel=config.first_kernel)
        self.core = _Level(config, filters, depth=config.depth)
        self.final = _make_series(config, filters, num_blocks=config.blocks_final, kernel=config.kernel)
        self.scores = nn.Conv3d(filters, config.num_classes, kernel_size=1, bias=config.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Score the pixels of all planes."""
        return self.scores(self.final(self.core(self.first(images.unsqueeze(1))))).transpose(1, 2)


# convolutions within the planes, unless `planes` says otherwise
_Block = functools.partial(Block, planes=1)
_make_series = functools.partial(make_block_series, block=_Block)


class _Level(nn.Module):
    """One level of the encoder and decoder with all that lies below it.

    The decoder gets the output of the encoder's blocks, which is joined after the decoder's blocks.
    """

    def __init__(self, config: UResNet3DConfig, channels: int, *, depth: int) -> None:
        super().__init__()
        below = channels + config.filters if config.growth == "additive" else 2 * channels
        self.connections = config.connections
        self.down = _make_series(config, channels, num_blocks=config.blocks_per_level, kernel=config.kernel)
        self.shrink = make_shrinking(config, channels, below, block=_Block, pool=nn.MaxPool3d((1, 2, 2)))
        self.below = _Level(config, below, depth=depth - 1) if depth > 1 else _make_deepest(config, below)
        if config.upsampling == "transposed":
            self.grow: nn.Module = nn.ConvTranspose3d(below, channels, (1, 2, 2), (1, 2, 2), bias=config.bias)
        else:
            self.grow = nn.Sequential(_UpsamplePlanes(), _Block(config, below, channels, kernel=1))
        self.up = _make_series(config, channels, num_blocks=config.blocks_per_level, kernel=config.kernel)
        is_concat = config.connections == "concat"
        self.join = _Block(config, 2 * channels, channels, kernel=1) if is_concat else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = self.down(x)
        return join_levels(self, self.up(self.grow(self.below(self.shrink(beside)))), beside)


class _UpsamplePlanes(nn.Module):
    """Doubles height and width of x_BKPHW plane by plane: IPUs interpolate in two dimensions, and not in three."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, planes, height, width = x.shape
        images = x.reshape(batch, channels * planes, height, width)
        doubled = nn.functional.interpolate(images, scale_factor=2, mode="bilinear")
        return doubled.reshape(batch, channels, planes, 2 * height, 2 * width)


def _make_deepest(config: UResNet3DConfig, channels: int) -> nn.Sequential:
    """Make the bottleneck: one kernel of three planes joins them to one, and another parts them again."""
    planes = 1 if config.block_concat else NUM_PLANES
    return nn.Sequential(
        _Block(config, channels, config.bottleneck, kernel=1, planes=planes),
        _make_series(config, config.bottleneck, num_blocks=config.blocks_deepest, kernel=config.deepest_kernel),
        _Block(config, config.bottleneck, channels, kernel=1, planes=planes, plane_padding=planes - 1),
    )
