"""Define the network: nested levels, each an encoder and a decoder around the level below.

B = events, P = planes (3), H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Tuple

import torch
from torch import nn

from porting.models.family import configure

from .config import DEFAULT, NUM_PLANES, VARIANTS, UResNet2DConfig, UResNetConfig

__all__ = ["Block", "UResNet2D", "build", "join_levels", "make_block_series", "make_shrinking"]

SLOPE = 0.01
"""Of the leaky ReLUs below zero."""


def build(variant: str = DEFAULT, **changes: Any) -> UResNet2D:
    """Make the network of a variant; `changes` are fields of `UResNet2DConfig`.

    >>> sum(parameter.numel() for parameter in build("a21").parameters())
    8525699
    """
    return UResNet2D(configure(VARIANTS, variant, changes))


class UResNet2D(nn.Module):
    """images_BPHW -> logits_BPCHW: a score of each class for each pixel of each plane.

    The original returns a tensor for each plane, as `as_planes` does with the result.

    >>> config = UResNet2DConfig(filters=2, depth=2, bottleneck=4, spatial_size=(8, 8))
    >>> UResNet2D(config)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 3, 8, 8])
    """

    def __init__(self, config: UResNet2DConfig) -> None:
        """Make the network; convolutions get Xavier's uniform weights and biases of zero to begin with."""
        super().__init__()
        filters = config.filters
        self.first = Block(config, 1, filters, kernel=config.first_kernel)
        self.core = _Level(config, filters, depth=config.depth)
        self.final = _make_series(config, filters, num_blocks=config.blocks_final, kernel=config.kernel)
        self.scores = nn.Conv2d(filters, config.num_classes, kernel_size=1, bias=config.bias)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Score the pixels of all planes."""
        planes = tuple(self.first(plane) for plane in images.chunk(NUM_PLANES, dim=1))
        planes = self.core(planes)
        return torch.stack([self.scores(self.final(plane)) for plane in planes], dim=1)


class Block(nn.Module):
    """A convolution, BatchNorm, and a leaky ReLU unless it is not `activated`; `stride` shrinks the image.

    With `planes` it is one of three dimensions, whose kernel sees so many planes beside each other; there may be
    `plane_padding` planes of zeros around them.
    """

    def __init__(
        self,
        config: UResNetConfig,
        before: int,
        after: int,
        *,
        kernel: int,
        stride: int = 1,
        activated: bool = True,
        planes: int = 0,
        plane_padding: int = 0,
    ) -> None:
        super().__init__()
        padding = kernel // 2 if stride == 1 else 0
        if planes:
            sizes = (planes, kernel, kernel), (1, stride, stride), (plane_padding, padding, padding)
            self.convolution: nn.Module = nn.Conv3d(before, after, *sizes, bias=config.bias)
        else:
            self.convolution = nn.Conv2d(before, after, kernel, stride, padding, bias=config.bias)
        norm = nn.BatchNorm3d if planes else nn.BatchNorm2d
        self.norm = norm(after) if config.batch_norm else nn.Identity()
        self.activation = nn.LeakyReLU(SLOPE) if activated else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve, normalise and activate."""
        return self.activation(self.norm(self.convolution(x)))


def make_block_series(
    config: UResNetConfig, channels: int, *, num_blocks: int, kernel: int, block: Callable[..., nn.Module]
) -> nn.Sequential:
    """Make `num_blocks` blocks that keep the number of channels; `block` makes one, for images or planes of images."""
    blocks = (
        _ResidualBlock(config, channels, kernel=kernel, block=block)
        if config.residual
        else block(config, channels, channels, kernel=kernel)
        for _ in range(num_blocks)
    )
    return nn.Sequential(*blocks)


class _ResidualBlock(nn.Module):
    """Two blocks, the second not activated, and their input added."""

    def __init__(self, config: UResNetConfig, channels: int, *, kernel: int, block: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            block(config, channels, channels, kernel=kernel),
            block(config, channels, channels, kernel=kernel, activated=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.body(x) + x, SLOPE)


_make_series = functools.partial(make_block_series, block=Block)


Planes = Tuple[torch.Tensor, ...]
"""x_BKHW of each plane."""


def make_shrinking(
    config: UResNetConfig, before: int, after: int, *, block: Callable[..., nn.Module], pool: nn.Module
) -> nn.Module:
    """Make the layer that halves height and width on the way down."""
    if config.downsampling == "strided":
        return block(config, before, after, kernel=2, stride=2)
    return nn.Sequential(pool, block(config, before, after, kernel=1))


def join_levels(level: Any, x: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
    """Join a level's upward features with the encoder's of that level, as the configuration's `connections` say."""
    if level.connections == "concat":
        return level.join(torch.cat([x, beside], dim=1))
    return x + beside if level.connections == "sum" else x


class _Level(nn.Module):
    """One level of the encoder and decoder with all that lies below it; every plane passes by itself.

    The decoder gets the level's input, which is joined before the decoder's blocks.
    """

    def __init__(self, config: UResNet2DConfig, channels: int, *, depth: int) -> None:
        super().__init__()
        below = channels + config.filters if config.growth == "additive" else 2 * channels
        self.connections = config.connections
        self.down = _make_series(config, channels, num_blocks=config.blocks_per_level, kernel=config.kernel)
        self.shrink = make_shrinking(config, channels, below, block=Block, pool=nn.MaxPool2d(2))
        self.below = _Level(config, below, depth=depth - 1) if depth > 1 else _Deepest(config, below)
        if config.upsampling == "transposed":
            self.grow: nn.Module = nn.ConvTranspose2d(below, channels, kernel_size=2, stride=2, bias=config.bias)
        else:
            doubled = nn.Upsample(scale_factor=2, mode="bilinear")
            self.grow = nn.Sequential(doubled, Block(config, below, channels, kernel=1))
        is_concat = config.connections == "concat"
        self.join = Block(config, 2 * channels, channels, kernel=1) if is_concat else nn.Identity()
        self.up = _make_series(config, channels, num_blocks=config.blocks_per_level, kernel=config.kernel)

    def forward(self, planes: Planes) -> Planes:
        deeper = self.below(tuple(self.shrink(self.down(plane)) for plane in planes))
        return tuple(self.up(join_levels(self, self.grow(low), plane)) for low, plane in zip(deeper, planes))


class _Deepest(nn.Module):
    """The bottleneck: the only place where the planes see each other, unless each passes it by itself."""

    def __init__(self, config: UResNet2DConfig, channels: int) -> None:
        super().__init__()
        outside = channels if config.block_concat else NUM_PLANES * channels
        self.is_joining = not config.block_concat
        self.body = nn.Sequential(
            Block(config, outside, config.bottleneck, kernel=1),
            _make_series(config, config.bottleneck, num_blocks=config.blocks_deepest, kernel=config.deepest_kernel),
            Block(config, config.bottleneck, outside, kernel=1),
        )

    def forward(self, planes: Planes) -> Planes:
        if self.is_joining:
            return tuple(self.body(torch.cat(planes, dim=1)).chunk(NUM_PLANES, dim=1))
        return tuple(self.body(plane) for plane in planes)
