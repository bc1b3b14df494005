"""Run `porting export`: capture a training step in one process, for another to compile."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Optional, Tuple

from porting.cli import EXIT_DONE, count
from porting.cli.output_files import explain_write_errors, require_folders, write_output

__all__ = [
    "PROGRAM_HELP",
    "add_arguments",
    "add_dump_argument",
    "add_step_arguments",
    "capture_program",
    "choose_dump_files",
    "load_step_program",
    "run",
    "write_dumps",
]

PROGRAM_HELP = """\
PROGRAM:FUNCTION is `file.py:name` or `package.module:name`, or a model of
porting.models, as `gpt:gpt2_small`. The name is that of a function
that returns (model, loss, batch), and if need be an optimizer and PortOptions;
it gets the batch size if it has a parameter `batch_size`."""

_EPILOG = f"""\
{PROGRAM_HELP}

a session:
  $ porting export train.py:make --batch 100 -o model.step
  model.step: training step of train.py:make, batch 100
  $ porting compile model.step
  ...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to export, as in train.py:make")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write, as in model.step")
    parser.add_argument("--no-weights", action="store_true", help="leave the values of parameters and buffers out")
    add_step_arguments(parser)
    add_dump_argument(parser)


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a program and of the options that its step runs with."""
    step = parser.add_argument_group("the step")
    step.add_argument("--batch", type=count, metavar="N", help="samples of a micro-batch (default: the program's)")
    step.add_argument("--mode", choices=("training", "inference"), help="(default: training)")
    step.add_argument(
        "--precision", choices=("float32", "float16", "bfloat16", "mixed"), help="(default: the program's, or float32)"
    )
    for name, what in (
        ("accumulation", "micro-batches of an optimizer step"),
        ("replicas", "replicas of the model"),
        ("iterations", "optimizer steps of a call"),
    ):
        step.add_argument(f"--{name}", type=count, metavar="N", help=f"{what} (default: the program's, or 1)")
    step.add_argument(
        "--computation-order",
        metavar="POLICY",
        help="what to compute twice instead of keeping it: chen, gttime, gtmem, ... (default: none)",
    )


def add_dump_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--dump-graph`."""
    parser.add_argument(
        "--dump-graph",
        action="append",
        default=[],
        metavar="FORMAT[=FILE]",
        help="write the graph as text, json, dot or onnx; without a file beside the step's",
    )


def run(arguments: argparse.Namespace) -> int:
    """Capture the step, write it, and describe it."""
    start = time.perf_counter()
    output = Path(arguments.output)
    require_folders(output)
    dumps = choose_dump_files(arguments.dump_graph, output)
    step = capture_program(arguments)
    with explain_write_errors(output):
        step.save(output, weights=not arguments.no_weights)
    write_dumps(step, dumps)
    print(f"{output}: {step.graph.mode} step of {step.target}, {step.batch}")
    print(f"captured in {time.perf_counter() - start:.2f} s; compile it: porting compile {output}", file=sys.stderr)
    return EXIT_DONE


def capture_program(arguments: argparse.Namespace) -> Any:
    """Load the program that `arguments` name and capture its step under their options."""
    from porting.exports import capture

    program = load_step_program(arguments)
    return capture(
        program.model,
        program.loss,
        program.batch,
        optimizer=program.optimizer,
        options=program.options,
        mode=arguments.mode or "training",
        target=arguments.program,
        **program.loss_settings,
    )


def load_step_program(arguments: argparse.Namespace, **placing: Any) -> Any:
    """Load the program that `arguments` name, with the options that they and `placing` change, and one call's batch."""
    # torch is loaded by the verbs that need it, and not for `porting --help`
    from porting.cli.programs import load_program
    from porting.options import PortOptions

    program = load_program(arguments.program, batch_size=arguments.batch)
    changes = {
        "micro_batch": arguments.batch if arguments.batch is not None else program.rows,
        "accumulation": arguments.accumulation,
        "replicas": arguments.replicas,
        "device_iterations": arguments.iterations,
        "precision": arguments.precision,
        "computation_order": arguments.computation_order,
        **placing,
    }
    options = (program.options or PortOptions()).replace(
        **{name: value for name, value in changes.items() if value is not None}
    )
    is_training = arguments.mode != "inference"
    rows = options.samples_per_call if is_training else options.samples_per_inference_call
    return replace(program, options=options, batch=program.batch_of(rows))


# -- files -------------------------------------------------------------------------------------------------------------


def choose_dump_files(wanted: List[str], beside: Path) -> List[Tuple[str, Optional[Path]]]:
    """Read `FORMAT[=FILE]` and choose the names of files that have none; `-` is the standard output.

    Raises ExecutableError E028 for an unknown format, E029 for a folder that is not there.
    """
    from porting.exports.dumps import require_format

    found: List[Tuple[str, Optional[Path]]] = []
    for text in wanted:
        form, _, name = text.partition("=")
        require_format(form)
        suffix = {"text": ".txt"}.get(form, f".{form}")
        found.append((form, None if name == "-" else Path(name) if name else beside.with_suffix(suffix)))
    require_folders(*(path for _form, path in found))
    return found


def write_dumps(step: Any, files: List[Tuple[str, Optional[Path]]]) -> None:
    """Write the graph of `step` in the chosen formats, to the chosen files."""
    from porting.exports.dumps import dump_graph

    for form, path in files:
        content = dump_graph(step, form)
        if path is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        else:
            write_output(path, content)
            print(f"{path}: the graph as {form}")
