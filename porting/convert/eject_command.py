"""Run `porting eject`: take the port out of a project, prove that what is left trains the same, and write it."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from porting.cli import refuse_usage
from porting.diagnostics import require_extra

__all__ = ["add_arguments", "run"]

_EPILOG = """\
  $ porting eject . --run "train.py --epochs 1"
  $ porting eject . --run "train.py --epochs 1" --write --out ../plain

What is left is plain PyTorch, which needs nothing of this package. Checkpoints of a
port hold plain weights, and stay as they are.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="PATH", help="the project's folder, or its script")
    parser.add_argument("--run", metavar="COMMAND", dest="command", help="how it is started, as 'train.py --epochs 1'")
    parser.add_argument(
        "--port-args", metavar="TEXT", default="--device sim", help="what makes it a port (default: --device sim)"
    )
    shown = parser.add_argument_group("what is shown and written")
    shown.add_argument("--diff", action="store_true", help="show the edits as a diff, too")
    shown.add_argument("--write", action="store_true", help="write the plain project if all columns passed")
    shown.add_argument("--out", type=Path, metavar="DIR", help="with --write: write into a new folder")
    shown.add_argument("--unproven", action="store_true", help="with --write: write although a column did not pass")
    proof = parser.add_argument_group("the proof")
    proof.add_argument("--steps", type=int, default=5, metavar="N", help="optimizer steps of both programs (default 5)")
    proof.add_argument("--seed", type=int, default=0, metavar="N", help="of all random numbers (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Eject, prove and write, and tell by the status whether nothing of a port is left and both train the same."""
    for option in ("out", "unproven"):
        if getattr(arguments, option) and not arguments.write:
            return refuse_usage("eject", f"--{option} needs --write")
    if arguments.steps < 1:
        return refuse_usage("eject", "--steps is at least 1")
    require_extra("libcst", extra="fix", message="`eject` edits programs with LibCST, which is not installed")
    outcome = importlib.import_module("porting.convert.work").eject_project(arguments)
    print(outcome.text)
    if outcome.note:
        print(outcome.note, file=sys.stderr)
    status: int = outcome.status
    return status
