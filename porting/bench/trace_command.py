"""Run `porting trace`, which writes a timeline of a program's training calls.

Such files are for chrome://tracing and Perfetto.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Optional

from porting.cli import EXIT_DONE, count
from porting.cli.completion import offer
from porting.cli.export import PROGRAM_HELP, add_step_arguments, load_step_program
from porting.cli.output_files import require_folders, write_output
from porting.engines import list_choices, require_engine

if TYPE_CHECKING:
    from porting.api import PortedModel
    from porting.cli.program_parts import LoadedProgram

__all__ = ["add_arguments", "run"]

_EPILOG = f"""\
{PROGRAM_HELP}

  $ porting trace train.py:make --steps 5 -o trace.json
  trace.json: 5 calls, CPU simulator of an IPU
  ...
Open it at https://ui.perfetto.dev or in chrome://tracing. Without --data the
loader serves the program's own batch, again and again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to train, as in train.py:make")
    parser.add_argument("--steps", type=count, default=3, metavar="N", help="calls to trace (default: 3)")
    parser.add_argument("-o", "--output", default="trace.json", metavar="FILE", help="(default: trace.json)")
    parser.add_argument("--data", metavar="PROGRAM:NAME", help="dataset or DataLoader to load from, as train.py:data")
    engine_help = "ready, auto, or an engine (default: the program's, or ready)"
    offer(parser.add_argument("--engine", metavar="NAME", help=engine_help), list_choices)
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train for some calls and write their timeline."""
    if arguments.mode == "inference":
        arguments.wrong_usage("a trace is one of training calls")
    output = Path(arguments.output)
    require_folders(output)
    require_engine(arguments.engine or "ready")
    # torch is loaded by the verbs that need it, and not for `porting --help`
    from porting.api import to_ipu
    from porting.bench.call_trace import record_calls

    placing = {} if arguments.engine is None else {"engine": arguments.engine}
    program = load_step_program(arguments, **placing)
    settings = program.loss_settings
    ported = to_ipu(program.model, program.loss, optimizer=program.optimizer, options=program.options, **settings)
    batches = _load_batches(ported, program, arguments.data)
    trace = record_calls(ported, batches, num_calls=arguments.steps, program=arguments.program)
    write_output(output, trace.to_json())
    print(f"{output}: {len(trace.calls)} call{'s' * (len(trace.calls) > 1)}, {trace.facts['device']}")
    print(f"{trace.facts['times']}; open it at https://ui.perfetto.dev", file=sys.stderr)
    return EXIT_DONE


def _load_batches(ported: PortedModel, program: LoadedProgram, data: Optional[str]) -> Iterator[Any]:
    """Yield combined batches from the port's loader without an end."""
    from porting.bench.data_path import generate_dataset
    from porting.bench.workloads import Workload
    from porting.cli.programs import load_value

    workload = Workload(program.model, program.loss, program.batch)
    source = generate_dataset(workload) if data is None else load_value(data)
    if source is None:  # a batch that no loader can cut into samples
        return itertools.repeat(program.batch)
    loader = ported.dataloader(source, drop_last=True, shuffle=False) if data is None else ported.dataloader(source)
    return itertools.chain.from_iterable(itertools.repeat(loader))
