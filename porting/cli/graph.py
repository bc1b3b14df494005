"""Run `porting graph`: print the captured graph of a program or an exported step."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from porting.cli import EXIT_DONE
from porting.cli.compile import load_or_capture
from porting.cli.export import add_step_arguments, choose_dump_files, write_dumps

__all__ = ["add_arguments", "run"]

_EPILOG = """\
STEP is a file that `porting export` wrote, or a PROGRAM:FUNCTION such as `train.py:make`.

  $ porting graph train.py:make --batch 100
  # training step of train.py:make, batch 100
  ...
  $ porting graph model.step --as dot -o model.dot
  $ porting graph model.step --orders none,chen,gttime
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments; `--format` is that of findings."""
    parser.epilog = _EPILOG
    parser.add_argument("step", metavar="STEP", help="an exported step, or a PROGRAM:FUNCTION as in train.py:make")
    parser.add_argument("--as", dest="form", metavar="FORMAT", help="text, json, dot or onnx (default: --format)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="where to (default: the standard output)")
    parser.add_argument(
        "--orders", metavar="A,B,...", help="compare what these computation orders keep and compute again instead"
    )
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the graph, or the comparison of computation orders."""
    if arguments.orders is None:
        form = arguments.form or ("json" if arguments.format == "json" else "text")
        files = choose_dump_files([f"{form}={arguments.output}"], Path())
        write_dumps(load_or_capture(arguments), files)
        return EXIT_DONE
    step = load_or_capture(arguments)
    from porting.engines.recompute.costs import format_costs, predict_costs

    print(f"{arguments.step}: {step.batch}", file=sys.stderr)
    costs = predict_costs(step.graph, arguments.orders.split(","))
    print(json.dumps([asdict(cost) for cost in costs], indent=2) if arguments.format == "json" else format_costs(costs))
    return EXIT_DONE
