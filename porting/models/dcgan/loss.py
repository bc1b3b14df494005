"""What generator and discriminator are each trained for.

B = samples.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .model import Logits

__all__ = ["discriminator_loss", "generator_loss", "loss"]


def discriminator_loss(real: torch.Tensor, fake: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Tell real from fake by logits_B: softplus(-real) + softplus(fake), the mean over the samples.

    `targets` are ones; less than one (0.9) is the smoothing that keeps a discriminator from being too sure.

    >>> zeros = torch.zeros(4)
    >>> round(discriminator_loss(zeros, zeros, torch.ones(4)).item(), 4)
    1.3863
    """
    return F.binary_cross_entropy_with_logits(real, targets) + F.softplus(fake).mean()


def generator_loss(held: torch.Tensor) -> torch.Tensor:
    """Be taken for real, by logits_B of a discriminator that is held constant: softplus(-held), the mean."""
    return F.softplus(-held).mean()


def loss(logits: Logits, targets: torch.Tensor) -> torch.Tensor:
    """Add both losses: each has gradients for its own network only, so that one step of an optimizer trains both.

    `targets` (B) are what the discriminator should say of real images: ones.
    """
    real, fake, held = logits
    return discriminator_loss(real, fake, targets) + generator_loss(held)
