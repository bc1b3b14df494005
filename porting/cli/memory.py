"""Run `porting memory`: report whether the step of a program fits into an IPU's memory, and what to do if not."""

from __future__ import annotations

import argparse
import json

from porting.cli import EXIT_DONE, EXIT_FAILED
from porting.cli.export import PROGRAM_HELP, add_step_arguments, load_step_program

__all__ = ["add_arguments", "run"]

_EPILOG = f"""\
{PROGRAM_HELP} Nothing is computed.

  $ porting memory train.py:make --batch 8
  memory of bow: 897 MiB an IPU; micro-batch 8
  ...
  fits: 20% of the fullest IPU's memory (17% to 23%)

exit status: 0 when it fits or may, 1 when it does not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to look at, as in train.py:make")
    parser.add_argument("--ipu", default="bow", metavar="NAME", help="gc2, gc200 or bow (default: bow)")
    parser.add_argument("--recompute", metavar="A,B,...", help="modules whose outputs are kept, all else is recomputed")
    parser.add_argument("--stages", metavar="A=1,B=2,...", help="modules where stages begin, and their IPUs")
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; the status tells whether the step fits."""
    # torch is loaded by the verbs that need it, and not for `porting --help`
    from porting.adapters.labels import split_labels
    from porting.api import to_ipu
    from porting.planning import memory_report
    from porting.structure import make_call_arguments

    stages = None
    if arguments.stages:
        pairs = [text.partition("=") for text in arguments.stages.split(",")]
        stages = {name: int(ipu) if ipu.isdecimal() else ipu for name, _, ipu in pairs}
    recompute = arguments.recompute.split(",") if arguments.recompute else None
    program = load_step_program(arguments, recompute=recompute, stages=stages)
    mode = arguments.mode or "training"
    ported = to_ipu(program.model, program.loss, optimizer=program.optimizer, options=program.options, device="sim")
    is_labelled = mode == "inference" and program.loss is not None
    args, kwargs = make_call_arguments(program.batch)
    if is_labelled:
        args, kwargs, _labels = split_labels(ported.port.model.forward, args, kwargs, label=ported.port.label)
    report = memory_report(ported, kwargs or args, target=arguments.ipu, mode=mode)
    print(json.dumps(report.to_dict(), indent=2) if arguments.format == "json" else report)
    return EXIT_DONE if report.fits else EXIT_FAILED
