"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse

__all__ = ["count"]


def count(text: str) -> int:
    """Read a number from 1 on, for argparse.

    >>> count("3")
    3
    """
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
