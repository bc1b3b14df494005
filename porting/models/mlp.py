"""Define a perceptron with hidden layers: linear layers with ReLU between them.

B = samples, F = features, C = classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Mapping, Sequence, Tuple

import torch
from torch import nn
from torch.nn import functional as F

from porting.models.family import check_positive, configure, draw_weights, lecun_deviation

__all__ = ["DEFAULT", "VARIANTS", "MLPConfig", "build", "example_batch", "loss", "make_mlp"]


@dataclass(frozen=True)
class MLPConfig:
    """The sizes of a perceptron's layers, the features first; a last one of 1 tells two classes apart."""

    sizes: Tuple[int, ...] = (784, 1000, 1000, 10)

    def __post_init__(self) -> None:
        check_positive(self)
        if len(self.sizes) < 2:
            raise ValueError(f"`sizes` is {self.sizes}; a layer has at least two, its features and its outputs")


DEFAULT = "mnist"

VARIANTS: Mapping[str, MLPConfig] = MappingProxyType(
    {
        "mushrooms": MLPConfig((22, 44, 44, 1)),
        "mnist": MLPConfig(),
        "mnist_small": MLPConfig((784, 100, 100, 10)),
    }
)
"""By name: is a mushroom poisonous (22 features), and which digit is it (28 x 28 pixels in a row)."""


def build(variant: str = DEFAULT, *, lecun: bool = False, **changes: Any) -> nn.Sequential:
    """Make a perceptron, features_BF -> logits_BC; `changes` are fields of `MLPConfig`.

    With `lecun` the weights begin as LeCun's normal ones, of variance 1 / inputs and without bias, as in Chainer.

    >>> import torch
    >>> build("mushrooms")(torch.zeros(3, 22)).shape
    torch.Size([3, 1])
    """
    model = make_mlp(configure(VARIANTS, variant, changes).sizes)
    if lecun:
        draw_weights(model, lecun_deviation)
    return model


def make_mlp(sizes: Sequence[int] = (784, 1000, 1000, 10)) -> nn.Sequential:
    """Make linear layers with ReLU between them, from F = `sizes[0]` features to C = `sizes[-1]` logits.

    >>> [layer.out_features for layer in make_mlp((4, 8, 2)) if isinstance(layer, nn.Linear)]
    [8, 2]
    """
    layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in zip(sizes, sizes[1:])]
    return nn.Sequential(*list(chain.from_iterable(layers))[:-1])


def example_batch(config: MLPConfig, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random features_BF and labels_B, or labels_B1 of 0.0 and 1.0 for a single logit.

    >>> [tuple(tensor.shape) for tensor in example_batch(MLPConfig((22, 44, 1)), batch_size=3)]
    [(3, 22), (3, 1)]
    """
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((batch_size, config.sizes[0]), generator=generator)
    if config.sizes[-1] == 1:
        return features, torch.randint(2, (batch_size, 1), generator=generator).float()
    return features, torch.randint(config.sizes[-1], (batch_size,), generator=generator)


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the samples; of logits_B1 and labels_B1 the binary one.

    The binary one is for labels that are 0.0 or 1.0. Whole numbers with a single logit are a ValueError: the
    cross-entropy of one class is 0, whatever the logit is.

    >>> round(loss(torch.zeros(2, 1), torch.ones(2, 1)).item(), 4)
    0.6931
    """
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(logits, labels)
    if logits.shape[-1] == 1:
        raise ValueError(f"the labels of a single logit are 0.0 and 1.0 in a column, not {labels.dtype}")
    return F.cross_entropy(logits, labels)
