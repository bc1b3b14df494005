"""Read the arguments that `porting convert` and `porting eject` share, and carry out what they ask for.

The work is loaded only then, as it needs torch and LibCST.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from pathlib import Path

from porting.cli import count, refuse_usage
from porting.diagnostics import require_extra

__all__ = ["DEFAULT_PORT_ARGUMENTS", "add_shared_arguments", "add_writing_arguments", "run_verb"]

_LEAST_PYTHON = (3, 9)

DEFAULT_PORT_ARGUMENTS = "--device sim"


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the project, how it is started, and how it is proved."""
    parser.add_argument("path", metavar="PATH", help="the project's folder, or its script")
    parser.add_argument(
        "--run",
        metavar="COMMAND",
        dest="command",
        help="how the program is started, as 'train.py --epochs 1'; it is then run for some steps, to prove the result",
    )
    parser.add_argument("--steps", type=count, default=5, metavar="N", help="steps that are compared (default: 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of both programs (default: 0)")


def add_writing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is shown, and what is written."""
    parser.add_argument("--diff", action="store_true", help="show the edits as a diff")
    parser.add_argument("--write", action="store_true", help="write the result, if all columns passed")
    parser.add_argument("--out", type=Path, metavar="DIR", help="with --write: write into a new folder instead")
    parser.add_argument("--unproven", action="store_true", help="with --write: write although a column did not pass")


def run_verb(verb: str, arguments: argparse.Namespace) -> int:
    """Carry a verb out and print what it says; the status tells whether the result is whole and proven."""
    # what runs a program on the simulator wants it, too
    fault = "" if sys.version_info >= _LEAST_PYTHON else f"`porting {verb}` needs Python 3.9 or a later one"
    fault = fault or _find_usage_fault(arguments)
    if fault:
        return refuse_usage(verb, fault)
    require_extra("libcst", extra="fix", message=f"`{verb}` edits programs with LibCST, which is not installed")
    outcome = getattr(importlib.import_module("porting.convert.work"), f"{verb}_project")(arguments)
    print(outcome.text, flush=True)
    if outcome.error is not None:
        raise outcome.error
    if outcome.note:
        print(outcome.note, file=sys.stderr)
    status: int = outcome.status
    return status


def _find_usage_fault(arguments: argparse.Namespace) -> str:
    """Say which arguments do not go together, or are no command line; empty where all are in order."""
    for option in ("out", "unproven"):
        if getattr(arguments, option) and not arguments.write:
            return f"--{option} needs --write"
    if getattr(arguments, "plan", False) and arguments.write:
        return "--plan writes nothing: leave out --write"
    if getattr(arguments, "instances", False) and arguments.style == "minimal":
        return "--instances needs --style idiomatic: a loop on the host joins no gradients over instances"
    for name, text in (("--run", arguments.command), ("--port-args", getattr(arguments, "port_args", None))):
        try:
            shlex.split(text or "")
        except ValueError as error:
            return f"{name} is no command line, {str(error).lower()}: {text}"
    return ""
