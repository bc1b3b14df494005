"""The sizes of a transformer like BERT, and which head it has."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "BertConfig"]


@dataclass(frozen=True)
class BertConfig:
    """What the transformer is made of; the defaults are BERT base.

    `head` is "masked_lm", which names the words that were masked out, or "classification", into `num_classes`. `length`
    is how many positions there are, and that of an example batch; `num_types` counts the kinds of tokens: those of a
    first and of a second sentence.
    """

    vocabulary: int = 30_522
    width: int = 768
    num_layers: int = 12
    num_heads: int = 12
    inner_width: int = 3072
    length: int = 512
    num_types: int = 2
    dropout: float = 0.1
    norm_epsilon: float = 1e-12
    head: str = "masked_lm"
    num_classes: int = 2

    def __post_init__(self) -> None:
        """Check what no layer would notice."""
        check_positive(self)
        if self.width % self.num_heads:
            raise ValueError(f"a width of {self.width} does not divide into {self.num_heads} heads")
        if self.head not in ("masked_lm", "classification"):
            raise ValueError(f"there is no head {self.head!r}; there are 'masked_lm', 'classification'")


DEFAULT = "base"

VARIANTS: Mapping[str, BertConfig] = MappingProxyType(
    {
        "base": BertConfig(),
        "mini": BertConfig(width=256, num_layers=4, num_heads=4, inner_width=1024),
        "tiny": BertConfig(width=128, num_layers=2, num_heads=2, inner_width=512),
        "toy": BertConfig(vocabulary=40, width=32, num_layers=2, num_heads=2, inner_width=64, length=12),
    }
)
"""By name: BERT base and two of its small published sizes, and one that trains in seconds."""
