"""Read what functions of the user return: one value, or several in a list or tuple."""

from __future__ import annotations

from typing import Any, List

__all__ = ["listed"]


def listed(result: Any) -> List[Any]:
    """Return the values of `result` as a list, also if it is one alone.

    >>> listed(1), listed((1, 2))
    ([1], [1, 2])
    """
    return list(result) if isinstance(result, (list, tuple)) else [result]
