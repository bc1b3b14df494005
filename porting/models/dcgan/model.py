"""A generator of images, a discriminator that tells them from real ones, and the pair of them as one model.

B = samples, Z = hidden numbers, H and W = height and width in pixels, C = channels.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, DCGANConfig

__all__ = ["DCGAN", "Discriminator", "Generator", "Logits", "ShiftNorm", "build"]

# Chainer's: torch adds 1e-5 to the variance, and has a slope of 0.01
_EPS, _SLOPE = 2e-5, 0.2


class Logits(NamedTuple):
    """What the discriminator says, positive for real: each B numbers.

    `fake` is of generated images as they are, and teaches the discriminator; `held` is of the same images by a
    discriminator that is held constant, and teaches the generator.
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
        shifted: torch.Tensor = self.norm(features) + self.bias[:, None, None]
        return shifted


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
        _initialise(self, config.weight_scale)

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
        _initialise(self, config.weight_scale)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits_B of images_B3HW, positive for real."""
        features = F.leaky_relu(self._noisy(self.first(self._noisy(images))), _SLOPE)
        for conv, norm in zip(self.convs, self.norms):
            features = F.leaky_relu(self._noisy(norm(conv(features))), _SLOPE)
        logits: torch.Tensor = self.last(features.flatten(1)).squeeze(1)
        return logits

    def hold(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits_B as `forward` does, as a constant function: neither gradients nor statistics of it remain."""
        state: Dict[str, torch.Tensor] = {name: value.detach() for name, value in self.named_parameters()}
        state.update((name, value.clone()) for name, value in self.named_buffers())
        logits: torch.Tensor = functional_call(self, state, (images,))
        return logits

    def _noisy(self, features: torch.Tensor) -> torch.Tensor:
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


def _initialise(module: nn.Module, scale: float) -> None:
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=scale)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
