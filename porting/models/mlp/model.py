"""Linear layers with ReLU between them.

B = samples, F = features, C = classes.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Sequence

from torch import nn

from porting.models.variants import configure

from .config import DEFAULT, VARIANTS

__all__ = ["build", "make_mlp"]


def build(variant: str = DEFAULT, **changes: Any) -> nn.Sequential:
    """Make a perceptron, features_BF -> logits_BC; `changes` are fields of `MLPConfig`.

    >>> import torch
    >>> build("mushrooms")(torch.zeros(3, 22)).shape
    torch.Size([3, 1])
    """
    return make_mlp(configure(VARIANTS, variant, changes).sizes)


def make_mlp(sizes: Sequence[int] = (784, 1000, 1000, 10)) -> nn.Sequential:
    """Make linear layers with ReLU between them, from F = `sizes[0]` features to C = `sizes[-1]` logits.

    >>> [layer.out_features for layer in make_mlp((4, 8, 2)) if isinstance(layer, nn.Linear)]
    [8, 2]
    """
    layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in zip(sizes, sizes[1:])]
    return nn.Sequential(*list(chain.from_iterable(layers))[:-1])
