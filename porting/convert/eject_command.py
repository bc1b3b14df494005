"""Run `porting eject`: take the port out of a project, prove that what is left trains the same, and write it."""

from __future__ import annotations

import argparse

from porting.convert.commands import DEFAULT_PORT_ARGUMENTS, add_shared_arguments, add_writing_arguments, run_verb

__all__ = ["add_arguments", "run"]

_EPILOG = """\
  $ porting eject . --run "train.py --epochs 1" --diff
  $ porting eject . --run "train.py --epochs 1" --write --out ../plain

What stays is plain PyTorch, which needs nothing of this package. Checkpoints of a
port hold plain weights, and stay as they are.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    add_shared_arguments(parser)
    parser.add_argument(
        "--port-args",
        metavar="TEXT",
        default=DEFAULT_PORT_ARGUMENTS,
        help=f"what makes the program train a port (default: {DEFAULT_PORT_ARGUMENTS})",
    )
    add_writing_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Eject, prove and write, and tell by the status whether nothing of a port is left and both train the same."""
    return run_verb("eject", arguments)
