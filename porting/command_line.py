"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse

__all__ = ["count"]


def count(text: str) -> int:
    """Read a number from 1 on, for argparse.

    >>> count("3")
    3
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
