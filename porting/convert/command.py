"""Run `porting convert`: plan a port of a training project, prove it on a copy, and write it where it is proven."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from porting.cli import refuse_usage
from porting.diagnostics import require_extra

__all__ = ["add_arguments", "run"]

_STYLES = ("minimal", "idiomatic")
_EPILOG = """\
  $ porting convert . --run "train.py --epochs 1"
  $ porting convert . --run "train.py --epochs 1" --diff
  $ porting convert . --run "train.py --epochs 1" --write
  $ porting convert . --plan --format json

--run is the program's own command line. With it the program is run for some steps,
on a copy, to see what its objects are and to prove the conversion. Without --style
the idiomatic one is tried first, and the minimal one where that leaves something
or is not proven.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="PATH", help="the project's folder, or its script")
    parser.add_argument("--run", metavar="COMMAND", dest="command", help="how it is started, as 'train.py --epochs 1'")
    parser.add_argument("--style", choices=_STYLES, help="minimal: the loop stays; idiomatic: the device makes steps")
    shown = parser.add_argument_group("what is shown and written")
    shown.add_argument("--plan", action="store_true", help="list the edits, and run nothing")
    shown.add_argument("--diff", action="store_true", help="show the edits as a diff, too")
    shown.add_argument("--write", action="store_true", help="write the converted project if all columns passed")
    shown.add_argument("--out", type=Path, metavar="DIR", help="with --write: write into a new folder")
    shown.add_argument("--unproven", action="store_true", help="with --write: write although a column did not pass")
    proof = parser.add_argument_group("the proof")
    proof.add_argument("--steps", type=int, default=5, metavar="N", help="optimizer steps of both programs (default 5)")
    proof.add_argument("--seed", type=int, default=0, metavar="N", help="of all random numbers (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Plan, prove and write a conversion, and tell by the status whether it is whole and proven."""
    fault = _find_usage_fault(arguments)
    if fault:
        return refuse_usage("convert", fault)
    require_extra("libcst", extra="fix", message="`convert` edits programs with LibCST, which is not installed")
    outcome = importlib.import_module("porting.convert.work").convert_project(arguments)
    print(outcome.text)
    if outcome.note:
        print(outcome.note, file=sys.stderr)
    status: int = outcome.status
    return status


def _find_usage_fault(arguments: argparse.Namespace) -> str:
    """Say which arguments do not go together; empty where all do."""
    for option in ("out", "unproven"):
        if getattr(arguments, option) and not arguments.write:
            return f"--{option} needs --write"
    if arguments.plan and arguments.write:
        return "--plan writes nothing: leave out --write"
    return "" if arguments.steps >= 1 else "--steps is at least 1"
