"""Classifiers of small grey images: a perceptron with hidden layers, and a convolutional network.

B = images, H and W = height and width in pixels, F = features, C = classes.
"""

from __future__ import annotations

from itertools import chain
from typing import Sequence

from torch import nn

__all__ = ["make_cnn", "make_mlp"]


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
