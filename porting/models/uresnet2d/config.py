"""Configure the network: the published configurations, and the learning rate that they are trained with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Mapping, Tuple, TypeVar

from porting.models.family import check_positive

__all__ = [
    "DEFAULT",
    "FULL_SIZE",
    "NUM_PLANES",
    "VARIANTS",
    "Schedule",
    "UResNet2DConfig",
    "UResNetConfig",
    "spatial_size_at",
]

NUM_PLANES = 3
"""An event is seen by three planes of wires."""

FULL_SIZE = (1280, 2048)
"""Height and width of a plane's image as the detector gives it: ticks of time, and wires."""

_CHOICES: Mapping[str, Tuple[str, ...]] = {
    "growth": ("additive", "multiplicative"),
    "downsampling": ("max_pooling", "strided"),
    "upsampling": ("interpolation", "transposed"),
    "connections": ("concat", "sum", "none"),
}

Config = TypeVar("Config", bound="UResNetConfig")


@dataclass(frozen=True)
class UResNetConfig:
    """The sizes of the networks of two and of three dimensions.

    Each of the `depth` levels halves the image. `filters` is the number of channels of the first; every level adds as
    many ("additive" growth), or doubles them ("multiplicative"). `blocks_per_level`, `blocks_deepest` and
    `blocks_final` count blocks, which are residual ones of two convolutions unless `residual` is False.

    A level is halved by "max_pooling" or by a "strided" convolution, and doubled by "interpolation" or by a
    "transposed" convolution. `connections` ("concat", "sum" or "none") says how a level of the decoder gets what the
    encoder had there.

    The deepest level joins the planes and has `bottleneck` channels; with `block_concat` (the name is the original's,
    and it means the contrary) each plane passes it by itself. `kernel`, `first_kernel` and `deepest_kernel` are widths
    in pixels. `spatial_size` is height and width of the images.
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
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}; it can be {', '.join(map(repr, choices))}")
        check_positive(self, zero_allowed=("blocks_per_level", "blocks_deepest", "blocks_final"))
        for name in ("kernel", "first_kernel", "deepest_kernel"):
            if getattr(self, name) % 2 == 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}; only odd kernels keep an image's size")
        height, width = self.spatial_size
        if height % 2**self.depth or width % 2**self.depth:
            raise ValueError(f"{height} x {width} pixels cannot be halved {self.depth} times")

    def at_downsample(self: Config, downsample: int) -> Config:
        """Make this configuration for images whose sides were halved `downsample` times; see `spatial_size_at`.

        >>> UResNet2DConfig().at_downsample(1).spatial_size
        (640, 1024)
        """
        return replace(self, spatial_size=spatial_size_at(downsample, depth=self.depth))


@dataclass(frozen=True)
class UResNet2DConfig(UResNetConfig):
    """The sizes of the network of two dimensions; its kernels are square."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each step, for a LambdaLR of an optimizer whose own learning rate is 1.

    It rises in a line from `start_rate` to `peak_rate` over the first `warm_up_epochs`, stays there for `flat_epochs`,
    and falls to `floor_rate` from then on, by exp(-`decay_per_epoch`) of what is above the floor in each epoch.

    >>> rate = Schedule(steps_per_epoch=100)
    >>> rate(0), rate(100), rate(2100)
    (1e-05, 0.0003, 0.0003)
    >>> round(rate(2200), 6), round(rate(10000), 6)
    (0.000174, 0.0001)
    """

    steps_per_epoch: float
    start_rate: float = 1e-5
    peak_rate: float = 3e-4
    floor_rate: float = 1e-4
    warm_up_epochs: float = 1.0
    flat_epochs: float = 20.0
    decay_per_epoch: float = 0.999

    def __post_init__(self) -> None:
        if self.steps_per_epoch <= 0:
            raise ValueError(f"`steps_per_epoch` is {self.steps_per_epoch}; an epoch has steps")

    def __call__(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        epoch = step / self.steps_per_epoch
        if epoch < self.warm_up_epochs:
            return self.start_rate + (self.peak_rate - self.start_rate) * epoch / self.warm_up_epochs
        decaying_epochs = max(0.0, epoch - self.warm_up_epochs - self.flat_epochs)
        return self.floor_rate + (self.peak_rate - self.floor_rate) * math.exp(-self.decay_per_epoch * decaying_epochs)


def spatial_size_at(downsample: int, *, depth: int) -> Tuple[int, int]:
    """Return height and width of an image whose sides were halved `downsample` times before the network sees it.

    The deepest level must have pixels left: raises ValueError unless `depth + downsample < 8`.

    >>> spatial_size_at(2, depth=5)
    (320, 512)
    """
    if downsample < 0 or depth + downsample >= 8:
        raise ValueError(f"a depth of {depth} and a downsampling of {downsample} are not less than 8 together")
    height, width = FULL_SIZE
    return height >> downsample, width >> downsample


DEFAULT = "uresnet"

VARIANTS: Mapping[str, UResNet2DConfig] = MappingProxyType(
    {
        "uresnet": UResNet2DConfig(),
        "a21": UResNet2DConfig(filters=8, residual=False),
        "a21_upstream": UResNet2DConfig(filters=8, residual=False, blocks_final=0, connections="sum"),
        "scc21": UResNet2DConfig(batch_norm=False),
        "polaris": UResNet2DConfig(
            depth=7,
            blocks_deepest=2,
            blocks_final=2,
            bottleneck=96,
            residual=False,
            connections="sum",
            spatial_size=FULL_SIZE,
        ),
    }
)
"""By name: the full network, that of the A21 machine as ported to IPUs and as it is now, that of the student cluster
competition of 2021 (without BatchNorm), and that of the Polaris machine."""
