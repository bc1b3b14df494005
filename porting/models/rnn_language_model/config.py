"""The sizes of a recurrent language model."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "RNNLanguageModelConfig"]


@dataclass(frozen=True)
class RNNLanguageModelConfig:
    """What the language model is made of; `length` is how many tokens a gradient goes back."""

    vocabulary: int = 10_000
    width: int = 650
    num_layers: int = 2
    length: int = 35
    dropout: float = 0.5

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        check_positive(self)


DEFAULT = "ptb"

VARIANTS: Mapping[str, RNNLanguageModelConfig] = MappingProxyType(
    {
        "ptb": RNNLanguageModelConfig(),
        "small": RNNLanguageModelConfig(vocabulary=50, width=48, length=16, dropout=0.1),
    }
)
"""By name: the one of Chainer's example for the Penn Treebank, and one that trains in seconds."""
