"""Blocks one after the other, residual or not: the same for images (2-D) and for planes of images (3-D)."""

from __future__ import annotations

from typing import Callable

import torch
from torch import nn

from .config import UResNetConfig

__all__ = ["SLOPE", "block_series"]

SLOPE = 0.01
"""Of the leaky ReLUs below zero."""


class _ResidualBlock(nn.Module):
    """Two blocks, the second not activated, and what went into them."""

    def __init__(self, config: UResNetConfig, channels: int, *, kernel: int, block: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            block(config, channels, channels, kernel=kernel),
            block(config, channels, channels, kernel=kernel, activated=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.body(x) + x, SLOPE)


def block_series(
    config: UResNetConfig, channels: int, *, num_blocks: int, kernel: int, block: Callable[..., nn.Module]
) -> nn.Sequential:
    """Make `num_blocks` blocks that keep the number of channels; `block` makes one, in two or three dimensions."""
    blocks = (
        _ResidualBlock(config, channels, kernel=kernel, block=block)
        if config.residual
        else block(config, channels, channels, kernel=kernel)
        for _ in range(num_blocks)
    )
    return nn.Sequential(*blocks)
