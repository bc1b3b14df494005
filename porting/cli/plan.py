"""This module is `porting plan`: whether a program's step fits a machine, where to cut it, and how fast it will be.

`porting memory` is its former name, with one chip instead of a machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from porting.cli import EXIT_DONE, EXIT_FAILED, count, positive
from porting.cli.completion import offer
from porting.cli.export import PROGRAM_HELP, add_step_arguments, load_step_program
from porting.cli.output_files import require_folders, write_output
from porting.diagnostics import show, suggest_name
from porting.machines.machine import read_machines

if TYPE_CHECKING:
    from porting.planning import Plan

__all__ = ["add_arguments", "run"]

_EPILOG = f"""\
{PROGRAM_HELP} Nothing is computed.

  $ porting plan train.py:make --machine bow-pod16 --batch 8
  memory of bow-pod16: 897 MiB an IPU; micro-batch 8
  ...
  fits: 20% of the fullest IPU's memory (17% to 23%)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to plan, as in train.py:make")
    machine = parser.add_argument(
        "--machine",
        "--ipu",
        default="bow-pod16",
        metavar="NAME",
        help="a system, as bow-pod64, a chip, as gc2, or FILE.json:NAME (default: bow-pod16)",
    )
    offer(machine, read_machines)
    parser.add_argument("--ipus", type=count, metavar="N", help="IPUs of a replica (default: as few as it fits on)")
    parser.add_argument(
        "--recompute",
        metavar="A,B,...",
        help="modules whose outputs are kept, all else is recomputed; or sqrt, or a budget as '200 MB'",
    )
    parser.add_argument("--stages", metavar="A=1,B=2,...", help="modules where stages begin, and their IPUs")
    parser.add_argument("--what-if", metavar="A=1,B=2,...", help="show what these options would change")
    parser.add_argument(
        "--loader-rate",
        type=positive,
        metavar="N",
        help="samples a second that the loader gives (default: what a second with the program's `loader` measures)",
    )
    parser.add_argument("--samples", type=positive, metavar="N", help="samples to train: shows the hours they take")
    parser.add_argument("--profile", metavar="REPORT", help="correct the plan by a PopVision report of the program")
    parser.add_argument(
        "--reduce",
        type=count,
        metavar="N",
        help="make a small model to prove instead: fewer layers, and sizes divided by N if it has a configuration",
    )
    parser.add_argument("--html", metavar="FILE", help="write the plan as a page")
    parser.set_defaults(loader=None)
    add_step_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and tell by the status whether the step fits."""
    # torch is loaded by the verbs that need it, and not for `porting --help`
    from porting.planning import calibrate, format_change, read_profile

    require_folders(arguments.html and Path(arguments.html))
    if arguments.reduce:
        return _reduce_program(arguments)
    plan = _plan_program(arguments, {})
    calibration = calibrate(plan, read_profile(arguments.profile)) if arguments.profile else None
    measured: Dict[str, Any] = {}
    if calibration is not None:
        plan, measured = calibration.apply(plan), {"profile": calibration.to_dict()}
        if arguments.format != "json":
            show(calibration)
    if arguments.loader is not None:
        measured["loader"] = dataclasses.asdict(arguments.loader)
    if arguments.what_if:
        changed = _plan_program(arguments, _read_changes(arguments))
        changed = changed if calibration is None else calibration.apply(changed)
        if arguments.format == "json":
            print(json.dumps({"before": plan.to_dict(), "after": changed.to_dict(), **measured}, indent=2))
        else:
            show(format_change(plan, changed))
        plan = changed
    else:
        _print_plan(plan, measured, as_json=arguments.format == "json")
    if arguments.format != "json":
        _print_inputs(arguments, plan)
    if arguments.html:
        from porting.planning.plan_page import write_plan_page

        page = write_plan_page(plan, arguments.program, num_samples=arguments.samples, loader=arguments.loader)
        write_output(Path(arguments.html), page.encode())
        print(f"{arguments.html}: the plan as a page")
    return EXIT_DONE if plan.fits else EXIT_FAILED


def _print_inputs(arguments: argparse.Namespace, plan: Plan) -> None:
    """Print what the loader gave, and how long the samples take: the hours in which 9 of 10 such trainings end."""
    if arguments.loader is not None:
        show(arguments.loader)
    if arguments.samples and plan.has_speed:
        low, hours, high = (plan.forecast.count_hours(arguments.samples, share) for share in (0.05, 0.5, 0.95))
        chips = plan.machine.num_chips
        print(
            f"{arguments.samples:,.0f} samples: {hours:,.1f} hours ({low:,.1f} to {high:,.1f} in 9 of 10 cases)", end=""
        )
        print(f", {hours * chips:,.0f} IPU hours")


def _print_plan(plan: Plan, measured: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**plan.to_dict(), **measured}, indent=2))
    else:
        show(plan)


def _plan_program(arguments: argparse.Namespace, changes: Dict[str, Any]) -> Any:
    """Plan the program with the options of the command line and other `changes`."""
    from porting.adapters.labels import split_labels
    from porting.planning import measure_loader, plan
    from porting.structure import make_call_arguments

    placing: Dict[str, Any] = {
        "recompute": _read_recompute(arguments.recompute) if arguments.recompute else None,
        "stages": _read_stages(arguments.stages) if arguments.stages else None,
        **changes,
    }
    program = load_step_program(arguments, **placing)
    mode = arguments.mode or "training"
    if arguments.loader_rate is None and not isinstance(program.batches, (list, tuple, type(None))):
        # once, also where two plans are compared
        arguments.loader = measure_loader(program.batches)
        arguments.loader_rate = arguments.loader and arguments.loader.samples_per_second
    args, kwargs = make_call_arguments(program.batch)
    if mode == "inference" and program.loss is not None:
        args, kwargs, _labels = split_labels(
            program.model.forward, args, kwargs, label=program.loss_settings.get("label", -1)
        )
    return plan(
        program.model,
        program.loss,
        kwargs or args,
        program.optimizer,
        program.options,
        arguments.machine,
        ipus=arguments.ipus,
        mode=mode,
        loader_rate=arguments.loader_rate,
        **program.loss_settings,
    )


def _reduce_program(arguments: argparse.Namespace) -> int:
    """Make a small model of the program's, and say what is in it and how to prove it."""
    from porting.planning import reduce_model

    program = load_step_program(arguments)
    reduced = reduce_model(
        program.model, program.batch, program.loss, divisor=arguments.reduce, options=program.options
    )
    if arguments.format == "json":
        print(json.dumps(reduced.to_dict(), indent=2))
        return EXIT_DONE
    print(reduced)
    print("prove it:")
    print(f"  small = porting.planning.reduce_model(model, batch, loss, divisor={arguments.reduce}).model")
    print("  porting.verify(small, loss, batch)")
    return EXIT_DONE


def _read_recompute(text: str) -> Any:
    """Read a policy, a budget, with or without its space, or names of modules."""
    megabytes = text[: -len("MB")].strip()
    if text.endswith("MB") and megabytes.replace(".", "", 1).isdecimal():
        return f"{megabytes} MB"
    return text if text in ("none", "sqrt") or text.endswith(" MB") else text.split(",")


def _split_pairs(text: str) -> list[Tuple[str, str]]:
    pairs = (part.partition("=") for part in text.split(","))
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _read_stages(text: str) -> Dict[str, Any]:
    return {name: int(ipu) if ipu.isdecimal() else ipu for name, ipu in _split_pairs(text)}


def _read_changes(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Read the options of `--what-if` as they are written in Python, or as plain words."""
    from porting.options import PortOptions

    known = [field.name for field in dataclasses.fields(PortOptions)]
    changes: Dict[str, Any] = {}
    for name, value in _split_pairs(arguments.what_if):
        if name not in known:
            advice = suggest_name(name, known, otherwise=f"there are {', '.join(known)}")
            arguments.wrong_usage(f"--what-if: PortOptions has no {name}: {advice}")
        try:
            changes[name] = json.loads(value.lower() if value in ("True", "False") else value)
        except ValueError:
            changes[name] = value
    return changes
