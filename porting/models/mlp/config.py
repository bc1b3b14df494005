"""The sizes of perceptrons: that for the mushrooms, and those for handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, Tuple

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "MLPConfig"]


@dataclass(frozen=True)
class MLPConfig:
    """The sizes of a perceptron's layers, the features first; a last one of 1 tells two classes apart."""

    sizes: Tuple[int, ...] = (784, 1000, 1000, 10)

    def __post_init__(self) -> None:
        """Refuse sizes below 1, and fewer than two of them."""
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
