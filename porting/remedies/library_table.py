"""The table of remedies for libraries."""

from __future__ import annotations

from typing import Tuple

from porting.remedies.entries import Remedy
from porting.remedies.transformers_values import TRANSFORMERS

__all__ = ["list_remedies"]


def list_remedies() -> Tuple[Remedy, ...]:
    """List all remedies.

    >>> sorted({remedy.library for remedy in list_remedies()})
    ['transformers']
    """
    return TRANSFORMERS
