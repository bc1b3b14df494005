"""Numbers that a configuration cannot have: torch would make layers without channels of them, and say nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Sequence

__all__ = ["check_positive"]


def check_positive(config: Any, *, zero_allowed: Sequence[str] = ()) -> None:
    """Raise ValueError unless all whole numbers of a configuration are at least 1, those in tuples as well.

    Those fields that are named in `zero_allowed` are at least 0. Of truth values and fractions nothing is said.

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
