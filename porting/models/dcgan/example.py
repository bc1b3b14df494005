"""Random hidden numbers and images, in the shapes that the pair of networks takes.

B = samples, Z = hidden numbers, H and W = height and width in pixels.
"""

from __future__ import annotations

from typing import Tuple

import torch

from .config import DCGANConfig

__all__ = ["example_batch", "make_hidden"]


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
    """Draw hidden_BZ, what images are made of: numbers between -1 and 1.

    >>> make_hidden(DCGANConfig(hidden=3), 2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3])
    """
    return torch.rand((num_samples, config.hidden), generator=generator) * 2 - 1
