"""Classifiers of features and of small grey images: a perceptron with hidden layers, and a convolutional network.

B = samples, H and W = height and width in pixels, F = features, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Sequence, Tuple, Union

import torch
from torch import nn

__all__ = ["CNNConfig", "MLPConfig", "example_batch", "loss", "make_cnn", "make_mlp"]


@dataclass(frozen=True)
class MLPConfig:
    """The sizes of a perceptron's layers; a last one of 1 tells two classes apart."""

    sizes: Tuple[int, ...] = (784, 1000, 1000, 10)

    def make(self) -> nn.Sequential:
        """Make the model."""
        return make_mlp(self.sizes)


@dataclass(frozen=True)
class CNNConfig:
    """The width of the square images, and the number of classes."""

    image_size: int = 28
    num_classes: int = 10

    def make(self) -> nn.Sequential:
        """Make the model."""
        return make_cnn(image_size=self.image_size, num_classes=self.num_classes)


def make_mlp(sizes: Sequence[int] = (784, 1000, 1000, 10)) -> nn.Sequential:
    """Make linear layers with ReLU between them, from F = `sizes[0]` features to C = `sizes[-1]` logits.

    >>> [layer.out_features for layer in make_mlp((4, 8, 2)) if isinstance(layer, nn.Linear)]
    [8, 2]
    """
    layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in zip(sizes, sizes[1:])]
    return nn.Sequential(*list(chain.from_iterable(layers))[:-1])


def make_cnn(*, image_size: int = 28, num_classes: int = 10) -> nn.Sequential:
    """Make two convolutions with BatchNorm, and two linear layers with Dropout: images_B1HW -> logits_BC.

    Images are square, `image_size` pixels wide, a multiple of 4.

    >>> import torch
    >>> make_cnn()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (image_size // 4) ** 2, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_classes),
    )


def example_batch(
    config: Union[CNNConfig, MLPConfig], *, batch_size: int, seed: int = 0
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random inputs (features_BF or images_B1HW) and labels_B, or labels_B1 of 0.0 and 1.0 for a single logit.

    >>> [tuple(tensor.shape) for tensor in example_batch(MLPConfig((22, 44, 1)), batch_size=3)]
    [(3, 22), (3, 1)]
    """
    generator = torch.Generator().manual_seed(seed)
    if isinstance(config, CNNConfig):
        shape: Tuple[int, ...] = (batch_size, 1, config.image_size, config.image_size)
        num_classes = config.num_classes
    else:
        shape, num_classes = (batch_size, config.sizes[0]), config.sizes[-1]
    inputs = torch.randn(shape, generator=generator)
    if num_classes == 1:
        return inputs, torch.randint(2, (batch_size, 1), generator=generator).float()
    return inputs, torch.randint(num_classes, (batch_size,), generator=generator)


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, the mean over the samples; of a single logit the binary one."""
    if labels.is_floating_point():
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return nn.functional.cross_entropy(logits, labels)
