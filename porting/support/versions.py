"""Compare versions of libraries, number by number."""

from __future__ import annotations

import re
from typing import Tuple

__all__ = ["is_version_between", "read_version"]


def is_version_between(version: str, first: str, below: str) -> bool:
    """Tell whether `version` is at least `first` and less than `below`, by its numbers alone.

    >>> is_version_between("5.23.0", "4.40", "6"), is_version_between("6.0.0.dev0", "4.40", "6")
    (True, False)
    """
    return read_version(first) <= read_version(version) < read_version(below)


def read_version(version: str) -> Tuple[int, ...]:
    """Read the numbers at the beginning of a version.

    >>> read_version("2.0.1+cu117"), read_version("6.0.0.dev0")
    ((2, 0, 1), (6, 0, 0))
    """
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in numbers.group().split(".")) if numbers else ()
