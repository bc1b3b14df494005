"""Share what all verbs of the command line need: exit statuses, a parser, actions, and types of arguments."""

from __future__ import annotations

import argparse
import sys
from types import MappingProxyType
from typing import Any, Mapping

from porting.diagnostics import FORMATS, suggest_name

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_DONE",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_NOT_RUN",
    "STATUSES",
    "Parser",
    "add_action",
    "count",
    "positive",
    "refuse_usage",
]

# as `diff` and `grep` have them: a script can tell "no" from "nobody knows"
EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_NOT_RUN = 2  # argparse ends with the same

# as shells count a process that a signal ended: 128 and the number of SIGINT, SIGPIPE
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

STATUSES: Mapping[int, str] = MappingProxyType(
    {
        EXIT_DONE: "done, and the answer is yes: nothing found, equal, it fits",
        EXIT_FAILED: "the answer is no: findings, not equal, it does not fit",
        EXIT_NOT_RUN: "no answer, it could not be run: wrong words, no such file, code that fails",
        EXIT_INTERRUPTED: "interrupted",
        EXIT_BROKEN_PIPE: "the reader of the output went away, as `head` does",
    }
)
"""What the exit statuses of all verbs mean, save those of `porting run`, which are the program's."""


class Parser(argparse.ArgumentParser):
    """A parser that says which choice was meant, of actions as well as of values.

    Its actions have parsers of the same class.
    """

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # private, and the one place that argparse has for it
        if action.choices is None or value in action.choices:
            return
        known = list(map(str, action.choices))
        advice = suggest_name(str(value), known, otherwise=f"use one of {', '.join(known)}")
        raise argparse.ArgumentError(action, f"there is no `{value}`: {advice}")


def add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Add an action of a verb, such as `porting recipe list`; the command's `--format` may stand after it as well."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    # the default must not overwrite what stood before
    parser.add_argument("--format", choices=FORMATS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(parser=parser, wrong_usage=parser.error)
    return parser


def refuse_usage(command: str, message: str) -> int:
    """Print the fault of the words after `porting` and the command, and return its exit status."""
    print(f"porting {command}: {message}", file=sys.stderr)
    return EXIT_NOT_RUN


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
