"""Define the contract of all model families, their named configurations, and what several families share.

B = samples, K = channels, H and W = height and width in pixels, T = tokens of a text, C = classes.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Callable, Mapping, Protocol, Sequence, Tuple, TypeVar, Union

import torch
from torch import nn
from torch.nn import functional as F

from porting.structure import Structure

__all__ = [
    "IGNORED",
    "Family",
    "check_images",
    "check_positive",
    "configure",
    "draw_weights",
    "example_batch",
    "example_text",
    "lecun_deviation",
    "loss",
    "token_loss",
]

Config = TypeVar("Config")


class Family(Protocol):
    """Models with one idea and several sizes.

    `VARIANTS` has a frozen dataclass for each size, `DEFAULT` is the name of one of them. The model made of a
    configuration takes all tensors of `example_batch` but the last, and `loss` what the model returns and the last.
    """

    DEFAULT: str
    VARIANTS: Mapping[str, Any]

    def build(self, variant: str, **changes: Any) -> nn.Module:
        """Make the model of a variant, with the fields of its configuration in `changes` replaced."""

    def example_batch(self, config: Any, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, ...]:
        """Make random inputs and labels of the shapes that a configuration's model takes."""

    def loss(self, outputs: Structure, labels: Structure) -> torch.Tensor:
        """Return a number that is small when the outputs are right."""


def configure(variants: Mapping[str, Config], variant: str, changes: Mapping[str, Any]) -> Config:
    """Return the configuration called `variant`, with the fields in `changes` replaced.

    A name that is not in `variants` is a ValueError that lists those that are; a field that the configuration does not
    have is a TypeError that lists its fields.

    >>> from porting.models.mlp import VARIANTS
    >>> configure(VARIANTS, "mnist", {"sizes": (784, 30, 10)})
    MLPConfig(sizes=(784, 30, 10))
    """
    if variant not in variants:
        raise ValueError(f"there is no variant {variant!r}; there are {', '.join(map(repr, variants))}")
    config: Any = variants[variant]
    names = [field.name for field in fields(config)]
    unknown = [name for name in changes if name not in names]
    if unknown:
        raise TypeError(f"{type(config).__name__} has no field {unknown[0]!r}; it has {', '.join(map(repr, names))}")
    return replace(config, **changes)


def check_positive(config: Any, *, zero_allowed: Sequence[str] = ()) -> None:
    """Raise ValueError unless all whole numbers of a configuration are at least 1, those in tuples as well.

    Those fields that are named in `zero_allowed` are at least 0; truth values and fractions are not checked. torch
    would make layers without channels of such numbers, and say nothing.

    >>> from porting.models.mlp import MLPConfig
    >>> MLPConfig((22, 0, 1))
    Traceback (most recent call last):
        ...
    ValueError: `sizes` is (22, 0, 1); each number of it is at least 1
    """
    for field in fields(config):
        value = getattr(config, field.name)
        least = 0 if field.name in zero_allowed else 1
        items = value if isinstance(value, tuple) else (value,)
        if any(isinstance(item, int) and not isinstance(item, bool) and item < least for item in items):
            subject = "each number of it" if isinstance(value, tuple) else "it"
            raise ValueError(f"`{field.name}` is {value}; {subject} is at least {least}")


def check_images(config: Images, *, least: int) -> None:
    """Refuse what `check_positive` does, and images of which a network's convolutions leave nothing: ValueError."""
    check_positive(config)
    if config.image_size < least:
        size = config.image_size
        raise ValueError(f"images of {size} x {size} pixels are too small: {least} are needed")


class Images(Protocol):
    """A configuration for square images, `image_size` pixels wide, of `num_classes` classes.

    They have one channel, if it does not say how many `in_channels`.
    """

    @property
    def image_size(self) -> int:
        """Height and width in pixels."""

    @property
    def num_classes(self) -> int:
        """The number of classes."""


def example_batch(config: Images, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random images_BKHW and labels_B.

    >>> from porting.models.cnn import CNNConfig
    >>> [tuple(tensor.shape) for tensor in example_batch(CNNConfig(), batch_size=3)]
    [(3, 1, 28, 28), (3,)]
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, getattr(config, "in_channels", 1), config.image_size, config.image_size)
    return torch.randn(shape, generator=generator), torch.randint(
        config.num_classes, (batch_size,), generator=generator
    )


def example_text(config: Any, *, batch_size: int, seed: int = 0) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make random tokens_BT out of `vocabulary`, T = `length`, and as labels_BT the tokens that follow each.

    >>> from porting.models.gpt import GPTConfig
    >>> tokens, labels = example_text(GPTConfig(length=5), batch_size=2)
    >>> bool((tokens[:, 1:] == labels[:, :-1]).all())
    True
    """
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(config.vocabulary, (batch_size, config.length + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of logits_BC with labels_B, the mean over the samples.

    >>> round(loss(torch.zeros(2, 10), torch.tensor([3, 4])).item(), 4)
    2.3026
    """
    return F.cross_entropy(logits, labels)


IGNORED = -100
"""The label of tokens that do not count, such as padding: what torch's losses ignore by default."""


def token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats of logits_BTC with labels_BT, the mean over the tokens whose label is not `IGNORED`.

    Or of logits_BC with labels_B, if each text has one label.
    """
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)


def draw_weights(model: nn.Module, deviation: Callable[[Any], float]) -> None:
    """Draw weights from normal distributions, whose standard deviation depends on the layer; biases become 0.

    These are the weights of convolutions, linear layers and embeddings.
    """
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding)):
            nn.init.normal_(layer.weight, std=deviation(layer))
            if not isinstance(layer, nn.Embedding) and layer.bias is not None:
                nn.init.zeros_(layer.bias)


def lecun_deviation(layer: Union[nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding]) -> float:
    """Return the deviation of LeCun's normal weights, whose variance is 1 / inputs; Chainer's default."""
    return float(layer.weight[0].numel() ** -0.5)
