"""Define a GAN for images: a generator makes them from noise, and a discriminator tells them from real ones.

B = samples, Z = hidden numbers, H and W = height and width in pixels, C = channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Mapping, NamedTuple, Tuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from porting.models.family import check_positive, configure, draw_weights

__all__ = [
    "DCGAN",
    "DEFAULT",
    "VARIANTS",
    "DCGANConfig",
    "Discriminator",
    "Generator",
    "Logits",
    "ShiftNorm",
    "build",
    "discriminator_loss",
    "example_batch",
    "generator_loss",
    "loss",
    "make_hidden",
]


@dataclass(frozen=True)
class DCGANConfig:
    """Sizes of a pair of networks for colour images that are eight times `bottom` pixels wide and high.

    `hidden` random numbers become an image by way of `channels`, a multiple of 8, then a half, a quarter and an eighth
    of it; the discriminator goes the opposite way. In training it adds `noise`, a standard deviation, to its input and
    after each convolution. `weight_scale` is the standard deviation of initial weights.

    `bias_before_norm` gives convolutions a bias where normalisation follows, as Chainer does. It has no effect:
    normalisation removes it again, and its gradient is rounding noise.
    """

    hidden: int = 100
    bottom: int = 4
    channels: int = 512
    noise: float = 0.2
    weight_scale: float = 0.02
    bias_before_norm: bool = True

    def __post_init__(self) -> None:
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

# Chainer's: torch adds 1e-5 to the variance, and has a slope of 0.01
_EPS, _SLOPE = 2e-5, 0.2


class Logits(NamedTuple):
    """The discriminator's scores, positive for real images: B numbers each.

    `fake` scores generated images and trains the discriminator; `held` scores the same images by a discriminator that
    is held constant, and trains the generator.
    """

    real: torch.Tensor
    fake: torch.Tensor
    held: torch.Tensor


class ShiftNorm(nn.Module):
    """Batch normalisation of BCHW that is shifted afterwards and not scaled: Chainer's with `use_gamma=False`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, eps=_EPS, affine=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Normalise features_BCHW and add the bias of each channel."""
        return self.norm(features) + self.bias[:, None, None]


class Generator(nn.Module):
    """Hidden numbers become images: linear, then four transposed convolutions, normalised all but the last."""

    def __init__(self, config: DCGANConfig) -> None:
        super().__init__()
        self.bottom, channels, bias = config.bottom, config.channels, config.bias_before_norm
        widths = [channels, channels // 2, channels // 4, channels // 8]
        num_features = channels * config.bottom**2
        self.linear = nn.Linear(config.hidden, num_features, bias=bias)
        self.first_norm = nn.BatchNorm1d(num_features, eps=_EPS)
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel_size=4, stride=2, padding=1, bias=bias)
            for before, after in zip(widths, widths[1:])
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, eps=_EPS) for width in widths[1:])
        self.last = nn.ConvTranspose2d(widths[-1], 3, kernel_size=3, stride=1, padding=1)
        draw_weights(self, lambda _layer: config.weight_scale)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Make images_B3HW from 0 to 1 of hidden_BZ."""
        features = F.relu(self.first_norm(self.linear(hidden)))
        features = features.view(len(hidden), -1, self.bottom, self.bottom)
        for conv, norm in zip(self.convs, self.norms):
            features = F.relu(norm(conv(features)))
        return torch.sigmoid(self.last(features))


class Discriminator(nn.Module):
    """Images become a logit: seven convolutions, normalised all but the first, with noise before each activation."""

    def __init__(self, config: DCGANConfig) -> None:
        super().__init__()
        self.noise, bias = config.noise, config.bias_before_norm
        eighth, quarter, half, full = (config.channels // parts for parts in (8, 4, 2, 1))
        self.first = nn.Conv2d(3, eighth, kernel_size=3, padding=1)
        # every second convolution halves height and width
        widths = [eighth, quarter, quarter, half, half, full, full]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=4 - keeps, stride=2 - keeps, padding=1, bias=bias)
            for before, after, keeps in zip(widths, widths[1:], (0, 1, 0, 1, 0, 1))
        )
        self.norms = nn.ModuleList(ShiftNorm(width) for width in widths[1:])
        self.last = nn.Linear(full * config.bottom**2, 1)
        draw_weights(self, lambda _layer: config.weight_scale)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits_B of images_B3HW, positive for real."""
        features = F.leaky_relu(self._add_noise(self.first(self._add_noise(images))), _SLOPE)
        for conv, norm in zip(self.convs, self.norms):
            features = F.leaky_relu(self._add_noise(norm(conv(features))), _SLOPE)
        return self.last(features.flatten(1)).squeeze(1)

    def hold(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits_B as `forward` does, as a constant function: neither gradients nor statistics of it remain."""
        state: Dict[str, torch.Tensor] = {name: value.detach() for name, value in self.named_parameters()}
        state.update((name, value.clone()) for name, value in self.named_buffers())
        return functional_call(self, state, (images,))

    def _add_noise(self, features: torch.Tensor) -> torch.Tensor:
        if not self.training or self.noise == 0:
            return features
        return features + self.noise * torch.randn_like(features)


class DCGAN(nn.Module):
    """Generator and discriminator in one model, so that one graph can train both."""

    def __init__(self, config: DCGANConfig) -> None:
        super().__init__()
        self.generator = Generator(config)
        self.discriminator = Discriminator(config)

    def forward(self, hidden: torch.Tensor, images: torch.Tensor) -> Logits:
        """Return the logits of real images_B3HW and of those that hidden_BZ become."""
        made = self.generator(hidden)
        real, fake = self.discriminator(images), self.discriminator(made.detach())
        return Logits(real, fake, self.discriminator.hold(made))


def build(variant: str = DEFAULT, **changes: Any) -> DCGAN:
    """Make the pair of networks; `changes` are fields of `DCGANConfig`.

    >>> gan = build("small")
    >>> gan.generator(torch.zeros(2, 32)).shape
    torch.Size([2, 3, 32, 32])
    """
    return DCGAN(configure(VARIANTS, variant, changes))


def example_batch(
    config: DCGANConfig, *, batch_size: int, seed: int = 0
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make hidden_BZ, random images_B3HW from 0 to 1, and targets_B of ones.

    >>> [tuple(tensor.shape) for tensor in example_batch(DCGANConfig(), batch_size=2)]
    [(2, 100), (2, 3, 32, 32), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = make_hidden(config, batch_size, generator=generator)
    images = torch.rand((batch_size, 3, config.image_size, config.image_size), generator=generator)
    return hidden, images, torch.ones(batch_size)


def make_hidden(config: DCGANConfig, num_samples: int, *, generator: torch.Generator) -> torch.Tensor:
    """Draw hidden_BZ, the noise that images are made of: numbers between -1 and 1.

    >>> make_hidden(DCGANConfig(hidden=3), 2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3])
    """
    return torch.rand((num_samples, config.hidden), generator=generator) * 2 - 1


def discriminator_loss(real: torch.Tensor, fake: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Tell real from fake by logits_B: softplus(-real) + softplus(fake), the mean over the samples.

    `targets` are ones; less than one (0.9) is the smoothing that keeps a discriminator from being too sure.

    >>> zeros = torch.zeros(4)
    >>> round(discriminator_loss(zeros, zeros, torch.ones(4)).item(), 4)
    1.3863
    """
    return F.binary_cross_entropy_with_logits(real, targets) + F.softplus(fake).mean()


def generator_loss(held: torch.Tensor) -> torch.Tensor:
    """Reward images taken for real, by logits_B of a discriminator that is held constant: mean softplus(-held)."""
    return F.softplus(-held).mean()


def loss(logits: Logits, targets: torch.Tensor) -> torch.Tensor:
    """Add both losses: each has gradients for its own network only, so that one step of an optimizer trains both.

    `targets` (B) are the discriminator's aims for real images: ones.
    """
    real, fake, held = logits
    return discriminator_loss(real, fake, targets) + generator_loss(held)
