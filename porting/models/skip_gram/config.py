"""The sizes of a skip-gram model."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "SkipGramConfig"]


@dataclass(frozen=True)
class SkipGramConfig:
    """What a skip-gram model is made of; `window` is how many words on either side of the centre are its contexts."""

    vocabulary: int = 10_000
    width: int = 100
    window: int = 5

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        check_positive(self)


DEFAULT = "ptb"

VARIANTS: Mapping[str, SkipGramConfig] = MappingProxyType(
    {"ptb": SkipGramConfig(), "small": SkipGramConfig(vocabulary=80, width=16, window=3)}
)
"""By name: the one of Chainer's example for the Penn Treebank, and one that trains in seconds."""
