"""The residual network: a stem, four stages of blocks, and a classifier of the mean over all pixels.

B = images, H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from typing import Any, List

import torch
from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS, ResNetConfig

__all__ = ["ResNet", "build"]

_WIDENING = 4  # channels between bottlenecks, over those inside


def build(variant: str = DEFAULT, **changes: Any) -> ResNet:
    """Make a residual network; `changes` are fields of `ResNetConfig`.

    >>> build("resnet50", width=2, num_classes=7)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 7])
    """
    return ResNet(configure(VARIANTS, variant, changes))


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
            nn.BatchNorm2d(width, eps=config.norm_epsilon),
            nn.ReLU(inplace=True),
            _stem_pool(config),
        )
        stages, channels = [], width
        for index, num_blocks in enumerate(config.blocks):
            stride = 1 if index == 0 else 2
            stages.append(_stage(config, channels, width * 2**index, num_blocks=num_blocks, stride=stride))
            channels = width * 2**index * (_WIDENING if config.bottleneck else 1)
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, config.num_classes)
        self._initialise(config)

    def _initialise(self, config: ResNetConfig) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, _Block) and config.zero_init_last:
                # the bias of the last BatchNorm is 0 anyway
                for parameter in module.body[-1].parameters():
                    nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        features: torch.Tensor = self.pool(self.stages(self.stem(images)))
        logits: torch.Tensor = self.classifier(features.flatten(1))
        return logits


def _stem_pool(config: ResNetConfig) -> nn.Module:
    if config.stem_pool == 3:
        return nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
    return nn.MaxPool2d(kernel_size=2, stride=2, ceil_mode=True)


def _stage(config: ResNetConfig, before: int, width: int, *, num_blocks: int, stride: int) -> nn.Sequential:
    """Make the blocks of a stage, of which the first one changes the number of channels and the size."""
    blocks: List[nn.Module] = []
    for index in range(num_blocks):
        blocks.append(_Block(config, before, width, stride=stride if index == 0 else 1))
        before = width * (_WIDENING if config.bottleneck else 1)
    return nn.Sequential(*blocks)


class _Block(nn.Module):
    """Two or three convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, config: ResNetConfig, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        layers = _bottleneck_layers if config.bottleneck else _basic_layers
        after = width * (_WIDENING if config.bottleneck else 1)
        self.body = nn.Sequential(*layers(config, before, width, stride=stride))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(*_convolution(config, before, after, kernel=1, stride=stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _basic_layers(config: ResNetConfig, before: int, width: int, *, stride: int) -> List[nn.Module]:
    return [
        *_convolution(config, before, width, kernel=3, stride=stride),
        nn.ReLU(inplace=True),
        *_convolution(config, width, width, kernel=3),
    ]


def _bottleneck_layers(config: ResNetConfig, before: int, width: int, *, stride: int) -> List[nn.Module]:
    first, middle = (stride, 1) if config.stride_in_1x1 else (1, stride)
    return [
        *_convolution(config, before, width, kernel=1, stride=first),
        nn.ReLU(inplace=True),
        *_convolution(config, width, width, kernel=3, stride=middle),
        nn.ReLU(inplace=True),
        *_convolution(config, width, width * _WIDENING, kernel=1),
    ]


def _convolution(config: ResNetConfig, before: int, after: int, *, kernel: int, stride: int = 1) -> List[nn.Module]:
    """Make a convolution, which needs no bias, and the BatchNorm after it."""
    return [
        nn.Conv2d(before, after, kernel_size=kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(after, eps=config.norm_epsilon),
    ]
