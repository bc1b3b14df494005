"""UResNet2D: segments the images of three wire planes with one set of weights, joined at the deepest level.

An encoder and a decoder of residual blocks with connections between their levels, after the CosmicTagger network of
the MicroBooNE and SBND neutrino experiments (arXiv 2207.07735).

B = events, P = planes (3), H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import torch
from torch import nn

__all__ = ["NUM_PLANES", "UResNet2D", "UResNet2DConfig", "example_batch", "loss"]

NUM_PLANES = 3


@dataclass(frozen=True)
class UResNet2DConfig:
    """What the network is made of.

    Each of the `depth` levels halves the image and adds `filters` channels. `blocks_per_level`, `blocks_deepest` and
    `blocks_final` count blocks, which are residual ones of two convolutions unless `residual` is False. The deepest
    level has `bottleneck` channels and kernels of `deepest_kernel` pixels. `joins` ("concat", "sum" or "none") says how
    a level of the decoder gets what the encoder had there.
    """

    filters: int = 16
    depth: int = 6
    blocks_per_level: int = 2
    blocks_deepest: int = 5
    blocks_final: int = 5
    bottleneck: int = 256
    deepest_kernel: int = 5
    residual: bool = True
    batch_norm: bool = True
    joins: str = "concat"
    num_classes: int = 3
    height: int = 640
    width: int = 1024

    def __post_init__(self) -> None:
        """Refuse images that cannot be halved `depth` times, and joins that do not exist."""
        if self.height % 2**self.depth or self.width % 2**self.depth:
            raise ValueError(f"{self.height} x {self.width} pixels cannot be halved {self.depth} times")
        if self.joins not in ("concat", "sum", "none"):
            raise ValueError(f"`joins` is {self.joins!r}; it can be 'concat', 'sum' or 'none'")


class UResNet2D(nn.Module):
    """images_BPHW -> logits_BPCHW: a score of each class for each pixel of each plane.

    >>> config = UResNet2DConfig(filters=2, depth=2, bottleneck=4, height=8, width=8)
    >>> UResNet2D(config)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 3, 8, 8])
    """

    def __init__(self, config: UResNet2DConfig) -> None:
        """Make the network; convolutions get Xavier's uniform weights and no bias to begin with."""
        super().__init__()
        filters = config.filters
        self.first = _Block(config, 1, filters, kernel=5)
        self.core = _Level(config, filters, depth=config.depth)
        self.final = _series(config, filters, num_blocks=config.blocks_final)
        self.scores = nn.Conv2d(filters, config.num_classes, kernel_size=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Score the pixels of all planes."""
        planes = tuple(self.first(plane) for plane in images.chunk(NUM_PLANES, dim=1))
        planes = self.core(planes)
        return torch.stack([self.scores(self.final(plane)) for plane in planes], dim=1)


class _Block(nn.Module):
    """A convolution that keeps the size, BatchNorm, and a leaky ReLU unless it is not `activated`."""

    def __init__(
        self, config: UResNet2DConfig, before: int, after: int, *, kernel: int, activated: bool = True
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, kernel_size=kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm2d(after) if config.batch_norm else nn.Identity()
        self.activation = nn.LeakyReLU(0.01) if activated else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.activation(self.norm(self.convolution(x)))
        return result


class _ResidualBlock(nn.Module):
    def __init__(self, config: UResNet2DConfig, channels: int, *, kernel: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Block(config, channels, channels, kernel=kernel),
            _Block(config, channels, channels, kernel=kernel, activated=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.body(x) + x, 0.01)


def _series(config: UResNet2DConfig, channels: int, *, num_blocks: int, kernel: int = 3) -> nn.Sequential:
    blocks = (
        _ResidualBlock(config, channels, kernel=kernel)
        if config.residual
        else _Block(config, channels, channels, kernel=kernel)
        for _ in range(num_blocks)
    )
    return nn.Sequential(*blocks)


Planes = Tuple[torch.Tensor, ...]


class _Level(nn.Module):
    """One level of the encoder and decoder with all that lies below it; every plane passes by itself."""

    def __init__(self, config: UResNet2DConfig, channels: int, *, depth: int) -> None:
        super().__init__()
        below = channels + config.filters
        self.joins = config.joins
        self.down = _series(config, channels, num_blocks=config.blocks_per_level)
        self.shrink = nn.Sequential(nn.MaxPool2d(2), _Block(config, channels, below, kernel=1))
        self.below = _Level(config, below, depth=depth - 1) if depth > 1 else _Deepest(config, below)
        self.grow = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"), _Block(config, below, channels, kernel=1)
        )
        self.join = _Block(config, 2 * channels, channels, kernel=1) if config.joins == "concat" else nn.Identity()
        self.up = _series(config, channels, num_blocks=config.blocks_per_level)

    def forward(self, planes: Planes) -> Planes:
        deeper = self.below(tuple(self.shrink(self.down(plane)) for plane in planes))
        return tuple(self.up(self._joined(self.grow(low), plane)) for low, plane in zip(deeper, planes))

    def _joined(self, x: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
        if self.joins == "concat":
            joined: torch.Tensor = self.join(torch.cat([x, beside], dim=1))
            return joined
        return x + beside if self.joins == "sum" else x


class _Deepest(nn.Module):
    """The bottleneck: the only place where the planes see each other."""

    def __init__(self, config: UResNet2DConfig, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Block(config, NUM_PLANES * channels, config.bottleneck, kernel=1),
            _series(config, config.bottleneck, num_blocks=config.blocks_deepest, kernel=config.deepest_kernel),
            _Block(config, config.bottleneck, NUM_PLANES * channels, kernel=1),
        )

    def forward(self, planes: Planes) -> Planes:
        return tuple(self.body(torch.cat(planes, dim=1)).chunk(NUM_PLANES, dim=1))


def example_batch(config: UResNet2DConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make images_BPHW that are zero nearly everywhere, as wires are, and labels_BPHW that mark the rest.

    >>> images, labels = example_batch(UResNet2DConfig(), batch_size=1)
    >>> images.shape == labels.shape, bool(((images > 0) == (labels > 0)).all())
    (True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, NUM_PLANES, config.height, config.width)
    is_hit = torch.rand(shape, generator=generator) < 0.02
    charge = torch.rand(shape, generator=generator) + 0.1
    kind = torch.randint(1, config.num_classes, shape, generator=generator)
    return torch.where(is_hit, charge, torch.zeros(())), torch.where(is_hit, kind, torch.zeros_like(kind))


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Focal cross-entropy of logits_BPCHW with labels_BPHW: the sum over the planes of the weighted mean of pixels.

    A pixel weighs (1 - p)^2 with p the probability given to its label, so that the many empty ones count little.
    """
    total = logits.new_zeros(())
    for scores, targets in zip(logits.unbind(1), labels.unbind(1)):
        by_pixel = nn.functional.cross_entropy(scores, targets, reduction="none")
        weights = (1.0 - torch.exp(-by_pixel.detach())) ** 2
        total = total + (weights * by_pixel).sum() / weights.sum()
    return total
