"""The sizes of recurrent classifiers, and which way they compute."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "RecurrentConfig"]


@dataclass(frozen=True)
class RecurrentConfig:
    """The sizes of a recurrent classifier, and whether its cell is `unrolled` by hand."""

    num_features: int = 64
    hidden: int = 128
    length: int = 32
    num_classes: int = 10
    unrolled: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        check_positive(self)


DEFAULT = "lstm"

VARIANTS: Mapping[str, RecurrentConfig] = MappingProxyType(
    {"lstm": RecurrentConfig(), "lstm_unrolled": RecurrentConfig(unrolled=True)}
)
"""By name: with `nn.LSTM`, and with a cell that is called once for each place."""
