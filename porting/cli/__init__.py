"""Share what all verbs of the command line need: exit codes, actions, and types of arguments."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from porting.diagnostics import FORMATS

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_USAGE",
    "add_action",
    "count",
    "positive",
    "refuse_usage",
]

EXIT_DONE = 0
EXIT_FAILED = 1
"""A finding stopped the command, or what it was asked to check does not hold."""

EXIT_USAGE = 2
"""Wrong usage; argparse ends with the same."""

# as shells count a process that a signal ended: 128 and the number of SIGINT, SIGPIPE
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Add an action of a verb, such as `porting recipe list`; the command's `--format` may stand after it as well."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    # the default must not overwrite what stood before
    parser.add_argument("--format", choices=FORMATS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def refuse_usage(command: str, message: str) -> int:
    """Print the fault of the words after `porting` and the command, and return the exit code of wrong usage."""
    print(f"porting {command}: {message}", file=sys.stderr)
    return EXIT_USAGE


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


def positive(text: str) -> float:
    """Read a finite number above 0, for argparse.

    >>> positive("1e7")
    10000000.0
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value
