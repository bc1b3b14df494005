"""The command line, a module for each verb, and the exit codes and types of arguments that they share."""

from __future__ import annotations

import argparse

__all__ = ["EXIT_BROKEN_PIPE", "EXIT_DONE", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "count"]

EXIT_DONE = 0
EXIT_FAILED = 1
"""A finding stopped the command, or what it was asked to check does not hold."""

EXIT_USAGE = 2
"""Wrong usage; argparse ends with the same."""

# as shells count a process that a signal ended: 128 and the number of SIGINT, SIGPIPE
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


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
