"""The sizes of a translator, and which tokens have a meaning of their own."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "Seq2SeqConfig"]


@dataclass(frozen=True)
class Seq2SeqConfig:
    """What a translator is made of.

    `max_length` is how many tokens it writes when nobody tells it the target; the two lengths of an example batch are
    `source_length` and `max_length`. `padding` and `end` are token numbers; a target starts with `end`, too.
    """

    source_vocabulary: int = 40_000
    target_vocabulary: int = 40_000
    width: int = 1024
    num_layers: int = 3
    dropout: float = 0.1
    source_length: int = 50
    max_length: int = 50
    padding: int = 0
    end: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        check_positive(self, zero_allowed=("padding", "end"))


DEFAULT = "wmt15"

VARIANTS: Mapping[str, Seq2SeqConfig] = MappingProxyType(
    {
        "wmt15": Seq2SeqConfig(),
        "small": Seq2SeqConfig(
            source_vocabulary=16, target_vocabulary=16, width=64, num_layers=2, source_length=8, max_length=9
        ),
    }
)
"""By name: the one of Chainer's example for French and English, and one that trains in seconds."""
