"""What the transformer is made of."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping

from porting.models.ranges import check_positive

__all__ = ["DEFAULT", "VARIANTS", "GPTConfig"]


@dataclass(frozen=True)
class GPTConfig:
    """What the transformer is made of; the defaults are a small one for text as bytes."""

    num_layers: int = 4
    num_heads: int = 4
    width: int = 256
    length: int = 128
    vocabulary: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Check what no layer would notice."""
        check_positive(self)
        if self.width % self.num_heads:
            raise ValueError(f"a width of {self.width} does not divide into {self.num_heads} heads")


DEFAULT = "small"

VARIANTS: Mapping[str, GPTConfig] = MappingProxyType(
    {
        "small": GPTConfig(),
        "gpt2_small": GPTConfig(num_layers=12, num_heads=12, width=768, length=1024, vocabulary=50_257, dropout=0.1),
    }
)
"""By name: a small one for text as bytes, and the smallest published GPT-2."""
