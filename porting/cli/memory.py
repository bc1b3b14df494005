"""`porting memory`: says whether the step of a program fits into an IPU's memory, and what to do if not."""

from __future__ import annotations

import argparse
import json

from porting.cli import EXIT_DONE, EXIT_FAILED
from porting.cli.export import add_step_arguments, read_step_changes

__all__ = ["add_arguments", "run"]

_EPILOG = """\
PROGRAM:FUNCTION is `file.py:name` or `package.module:name`, or a model of
porting.models, as `gpt:gpt2_small`. The name is that of a function
that returns (model, loss, batch), and if need be an optimizer and PortOptions;
it gets the batch size if it has a parameter `batch_size`. Nothing is computed.

  $ porting memory train.py:make --batch 8
  memory of bow: 897 MiB an IPU; micro-batch 8
  ...
  fits: 20% of the fullest IPU's memory (17% to 23%)

exit status: 0 when it fits or may, 1 when it does not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to look at, as in train.py:make")
    parser.add_argument("--ipu", default="bow", metavar="NAME", help="gc2, gc200 or bow (default: bow)")
    parser.add_argument("--recompute", metavar="A,B,...", help="modules whose outputs are kept, all else is recomputed")
    parser.add_argument("--stages", metavar="A=1,B=2,...", help="modules where stages begin, and their IPUs")
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report and tell by the status whether the step fits."""
    # torch is loaded by the verbs that need it, and not for `porting --help`
    from porting.api import to_ipu
    from porting.cli.programs import load_program
    from porting.options import PortOptions
    from porting.planning import memory_report

    program = load_program(arguments.program, batch_size=arguments.batch)
    options = (program.options or PortOptions()).replace(
        **read_step_changes(arguments, program.rows), **_read_placing(arguments)
    )
    mode = arguments.mode or "training"
    ported = to_ipu(program.model, program.loss, optimizer=program.optimizer, options=options, device="sim")
    rows = options.samples_per_call if mode == "training" else options.samples_per_inference_call
    batch = program.batch_of(rows)
    if mode == "inference" and program.loss is not None:
        batch = batch[:-1]
    report = memory_report(ported, batch, target=arguments.ipu, mode=mode)
    print(json.dumps(report.to_dict(), indent=2) if arguments.format == "json" else report)
    return EXIT_DONE if report.fits else EXIT_FAILED


def _read_placing(arguments: argparse.Namespace) -> dict:
    changes: dict = {}
    if arguments.recompute:
        changes["recompute"] = arguments.recompute.split(",")
    if arguments.stages:
        pairs = [text.partition("=") for text in arguments.stages.split(",")]
        changes["stages"] = {name: int(ipu) if ipu.isdecimal() else ipu for name, _, ipu in pairs}
    return changes
