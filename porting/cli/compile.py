"""Run `porting compile`: make the executable of an exported step, so that training starts with it at once."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from porting.cli import EXIT_DONE, EXIT_FAILED
from porting.cli.completion import offer
from porting.cli.export import add_dump_argument, add_step_arguments, capture_program, choose_dump_files, write_dumps
from porting.diagnostics import print_finding
from porting.engines import list_choices, require_engine

__all__ = ["add_arguments", "load_or_capture", "run"]

_EPILOG = """\
STEP is a file that `porting export` wrote, or a PROGRAM:FUNCTION such as `train.py:make`,
which is exported and compiled in one go. The executable is kept in the cache
folder: that of --cache, of PORTING_CACHE_DIR, or ~/.cache/porting. Training finds
it there if the model, the batch and the options are the same.

a session:
  $ porting compile model.step
  model.step: training step of train.py:make, batch 100
  ...
  aot: 1.6x replay (chosen of 3, 0 of them out, in 14 s): compiled and kept in the cache (...)
  $ python train.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("step", metavar="STEP", help="an exported step, or a PROGRAM:FUNCTION as in train.py:make")
    parser.add_argument("--cache", metavar="DIR", help="the folder of executables")
    engine = parser.add_argument(
        "--engine", default="auto", metavar="NAME", help="auto, which measures, aot, ... (default: auto)"
    )
    offer(engine, list_choices)
    parser.add_argument("--seconds", type=float, metavar="S", help="how long `auto` may measure (default: 180)")
    add_step_arguments(parser)
    add_dump_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print the result; the status tells whether training will be faster for it."""
    require_engine(arguments.engine)
    # dumps without a name lie beside the step, or beside the program that it is captured from
    path = Path(arguments.step)
    dumps = choose_dump_files(
        arguments.dump_graph, path if path.is_file() else Path(arguments.step.rpartition(":")[0] or path)
    )
    step = load_or_capture(arguments)
    print(f"{arguments.step}: {step.graph.mode} step{f' of {step.target}' if step.target else ''}, {step.batch}")
    # the compiler and its engines are loaded only once the step is known to be right
    from porting.engines.contract.limits import TuningLimits
    from porting.exports.compiling import compile_step

    obtained = compile_step(
        step,
        engine=arguments.engine,
        cache_dir=arguments.cache,
        limits=None if arguments.seconds is None else TuningLimits(seconds=arguments.seconds),
        report=lambda finding: print_finding(finding, arguments.format),
    )
    write_dumps(step, dumps)
    if obtained.tuning is not None:
        print(obtained.tuning)
    seconds = ", ".join(f"{what} {time:.2f} s" for what, time in obtained.seconds.items())
    origins = {"hit": "it was in the cache", "compiled": "compiled and kept in the cache"}
    came_from = origins.get(obtained.origin, "the step is replayed")
    print(f"{obtained.summary}: {came_from}" + (f" ({seconds})" if seconds else ""))
    is_ready = obtained.origin != "replay" or obtained.tuning is not None or arguments.engine == "replay"
    return EXIT_DONE if is_ready else EXIT_FAILED


def load_or_capture(arguments: argparse.Namespace) -> Any:
    """Return the exported step that `arguments.step` names, or capture that of a program.

    Raises ExecutableError: E023 and E024 for a file that cannot be used, E025 for one that was exported for another
    batch than `arguments` ask for, E020 to E022 for a program that cannot be used.
    """
    from porting.exports import is_step_file, load_step
    from porting.exports.compiling import require_batch, require_settings

    path = Path(arguments.step)
    # a Python file without a name is no step, either: the loader says which names there are
    if (not path.is_file() and ":" in arguments.step) or (path.suffix == ".py" and not is_step_file(path)):
        arguments.program = arguments.step
        return capture_program(arguments)
    step = load_step(path)
    require_batch(
        step,
        path=path,
        micro=arguments.batch,
        accumulation=arguments.accumulation,
        replicas=arguments.replicas,
        iterations=arguments.iterations,
    )
    require_settings(step, mode=arguments.mode, precision=arguments.precision)
    if arguments.computation_order is not None:
        step = replace(step, computation_order=arguments.computation_order)
    return step
