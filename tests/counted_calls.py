"""What a function costs, counted in calls: the same number on every machine, however busy it is."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable

__all__ = ["count_calls"]


def count_calls(function: Callable[[], Any]) -> int:
    """Run `function` and return how many functions were called, of Python and of C."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
