"""Define residual networks for images (He et al. 2015, arXiv 1512.03385): ResNet-18 to ResNet-152.

Two definitions are in use. The networks of 50, 101 and 152 layers have the same weights in both and differ in where
they lose resolution:

* `resnet50` and so on, as in torchvision: the stem's pooling has overlapping windows of 3 x 3, and a block that halves
  the image does so in its 3x3 convolution.
* `resnet50_chainer` and so on, as in Chainer's guide: the pooling has windows of 2 x 2 (a last, partial one counts,
  which is called `cover_all` there), and a block that halves the image does so in its first 1x1 convolution, as in the
  paper. BatchNorm adds 2e-5 to the variance.

B = images, H and W = height and width in pixels, C = classes, K = channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, List, Mapping, Tuple

import torch
from torch import nn
from torch.nn import functional as F

from porting.models.family import check_positive, configure

__all__ = ["DEFAULT", "VARIANTS", "ResNet", "ResNetConfig", "build", "example_batch", "loss"]


@dataclass(frozen=True)
class ResNetConfig:
    """The sizes of a residual network; the defaults are ResNet-18 for ImageNet.

    `blocks` counts the blocks of each of the four stages, which have `width`, 2, 4 and 8 x `width` channels, and four
    times as many between blocks that are a `bottleneck`. `stem_pool` is the width of the pooling windows, 3 or 2.
    `stride_in_1x1` moves the stride of a bottleneck from its 3x3 convolution into the 1x1 before. BatchNorm
    adds `norm_epsilon` to the variance. With `zero_init_last` the last BatchNorm of a block begins with a weight of 0,
    so that every block begins as its shortcut (Goyal et al. 2017, arXiv 1706.02677).
    `example_batch` makes images of `image_size`; the network takes any size.
    """

    blocks: Tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64
    num_classes: int = 1000
    in_channels: int = 3
    image_size: int = 224
    bottleneck: bool = False
    stem_pool: int = 3
    stride_in_1x1: bool = False
    norm_epsilon: float = 1e-5
    zero_init_last: bool = False

    def __post_init__(self) -> None:
        check_positive(self)
        if len(self.blocks) != 4:
            raise ValueError(f"`blocks` is {self.blocks}; it counts the blocks of four stages")
        if self.stem_pool not in (2, 3):
            raise ValueError(f"`stem_pool` is {self.stem_pool}; it can be 3 (overlapping windows) or 2")


DEFAULT = "resnet18"

_LAYERS = {
    "resnet18": ResNetConfig(),
    "resnet34": ResNetConfig(blocks=(3, 4, 6, 3)),
    "resnet50": ResNetConfig(blocks=(3, 4, 6, 3), bottleneck=True),
    "resnet101": ResNetConfig(blocks=(3, 4, 23, 3), bottleneck=True),
    "resnet152": ResNetConfig(blocks=(3, 8, 36, 3), bottleneck=True),
}

VARIANTS: Mapping[str, ResNetConfig] = MappingProxyType(
    {
        **_LAYERS,
        **{
            f"{name}_chainer": replace(config, stem_pool=2, stride_in_1x1=True, norm_epsilon=2e-5)
            for name, config in _LAYERS.items()
            if config.bottleneck
        },
    }
)
"""By name: the number of layers, and whose definition where it is not torchvision's."""

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
            nn.MaxPool2d(3, stride=2, padding=1) if config.stem_pool == 3 else nn.MaxPool2d(2, ceil_mode=True),
        )
        stages, channels = [], width
        for index, num_blocks in enumerate(config.blocks):
            blocks: List[nn.Module] = []
            for number in range(num_blocks):
                # the first block of a stage changes the number of channels and the size
                blocks.append(_Block(config, channels, width * 2**index, stride=2 if index and not number else 1))
                channels = width * 2**index * (_WIDENING if config.bottleneck else 1)
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, config.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, _Block) and config.zero_init_last:
                # the bias of the last BatchNorm is 0 anyway
                for parameter in module.body[-1].parameters():
                    nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        return self.classifier(self.pool(self.stages(self.stem(images))).flatten(1))


def example_batch(config: ResNetConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_BKHW and labels_B.

    >>> [tuple(tensor.shape) for tensor in example_batch(ResNetConfig(image_size=32), batch_size=2)]
    [(2, 3, 32, 32), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, config.in_channels, config.image_size, config.image_size)
    labels = torch.randint(config.num_classes, (batch_size,), generator=generator)
    return torch.randn(shape, generator=generator), labels


def loss(logits: torch.Tensor, labels: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the images.

    `label_smoothing` is the share of certainty that is spread over all classes.

    >>> round(loss(torch.zeros(2, 1000), torch.tensor([3, 4])).item(), 4)
    6.9078
    """
    return F.cross_entropy(logits, labels, label_smoothing=label_smoothing)


class _Block(nn.Module):
    """Two or three convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, config: ResNetConfig, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        # channels, kernel and stride of each convolution
        shapes = [(width, 3, stride), (width, 3, 1)]
        if config.bottleneck:
            first, middle = (stride, 1) if config.stride_in_1x1 else (1, stride)
            shapes = [(width, 1, first), (width, 3, middle), (width * _WIDENING, 1, 1)]
        layers: List[nn.Module] = []
        channels = before
        for after, kernel, step in shapes:
            layers += [*_make_convolution(config, channels, after, kernel=kernel, stride=step), nn.ReLU(inplace=True)]
            channels = after
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(*_make_convolution(config, before, after, kernel=1, stride=stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _make_convolution(config: ResNetConfig, before: int, after: int, *, kernel: int, stride: int) -> List[nn.Module]:
    """Make a convolution, which needs no bias, and the BatchNorm after it."""
    return [
        nn.Conv2d(before, after, kernel_size=kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(after, eps=config.norm_epsilon),
    ]
