"""Run `porting convert`: plan a port of a training project, prove it on a copy, and write it where it is proven."""

from __future__ import annotations

import argparse

from porting.convert.commands import add_shared_arguments, add_writing_arguments, run_verb

__all__ = ["add_arguments", "run"]

_STYLES = ("minimal", "idiomatic")
_EPILOG = """\
  $ porting convert . --run "train.py --epochs 1" --diff
  $ porting convert . --run "train.py --epochs 1" --write
  $ porting convert . --plan --format json

Nothing of the project changes without --write. What is proved has three columns:
  specification  the old command line starts the result, `porting check` finds no error
  numeric        output, loss and gradients of the first step are equal
  behavioral     some steps are: of the port, and without a device to the last bit
A column that was not run is not claimed. Without --style, the idiomatic style is
tried first, and the minimal one where that leaves something or is not proven.

With --plan, the status is 0 where nothing is left to a person.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    add_shared_arguments(parser)
    parser.add_argument(
        "--style", choices=_STYLES, help="minimal: the loop stays as it is; idiomatic: a call of the port is a step"
    )
    parser.add_argument(
        "--instances",
        action="store_true",
        help="let several processes train it together: each has its share of the samples, and the first one writes",
    )
    parser.add_argument("--plan", action="store_true", help="count the edits, and run nothing")
    add_writing_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plan, prove and write a conversion, and tell by the status whether it is whole and proven."""
    return run_verb("convert", arguments)
