"""Residual networks for images (He et al. 2015, arXiv 1512.03385), with basic blocks: ResNet-18 and ResNet-34.

B = images, H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import torch
from torch import nn

__all__ = ["ResNet", "ResNetConfig", "example_batch", "loss"]


@dataclass(frozen=True)
class ResNetConfig:
    """What a residual network is made of; the defaults are ResNet-18 for ImageNet.

    `blocks` counts the blocks of each of the four stages, which have `width`, 2, 4 and 8 x `width` channels.
    `image_size` is what `example_batch` makes; the network takes any size.
    """

    blocks: Tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64
    num_classes: int = 1000
    in_channels: int = 3
    image_size: int = 224


class ResNet(nn.Module):
    """images_BKHW -> logits_BC.

    >>> sum(parameter.numel() for parameter in ResNet(ResNetConfig()).parameters())
    11689512
    """

    def __init__(self, config: ResNetConfig) -> None:
        """Make the stem, four stages of blocks and the classifier, initialised as in the paper's code."""
        super().__init__()
        width = config.width
        self.stem = nn.Sequential(
            nn.Conv2d(config.in_channels, width, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        stages, channels = [], width
        for index, num_blocks in enumerate(config.blocks):
            stages.append(_stage(channels, width * 2**index, num_blocks=num_blocks, stride=1 if index == 0 else 2))
            channels = width * 2**index
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        features: torch.Tensor = self.pool(self.stages(self.stem(images)))
        logits: torch.Tensor = self.classifier(features.flatten(1))
        return logits


class _BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _stage(before: int, after: int, *, num_blocks: int, stride: int) -> nn.Sequential:
    blocks = [_BasicBlock(before, after, stride=stride)]
    blocks += [_BasicBlock(after, after, stride=1) for _ in range(num_blocks - 1)]
    return nn.Sequential(*blocks)


def example_batch(config: ResNetConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_BKHW and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(ResNetConfig(image_size=32), batch_size=2)]
    [(2, 3, 32, 32), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, config.in_channels, config.image_size, config.image_size)
    labels = torch.randint(config.num_classes, (batch_size,), generator=generator)
    return torch.randn(shape, generator=generator), labels


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC, the mean over the images."""
    return nn.functional.cross_entropy(logits, labels)
