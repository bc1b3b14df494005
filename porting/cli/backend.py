"""Run `porting backend`: list the registered backends, and check whether a module can be one."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict

from porting.cli import EXIT_DONE, EXIT_FAILED, add_action, refuse_usage
from porting.diagnostics import show

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_action(actions, "list", "name the devices that `to_ipu(device=...)` takes")
    check = add_action(actions, "check", "train small models on a module, and compare with plain PyTorch")
    check.add_argument("module", metavar="MODULE", help="a module with PopTorch's API, or a registered name")


def run(arguments: argparse.Namespace) -> int:
    """List or check backends; the exit status of `check` is 1 when a check fails."""
    from porting.options.devices import list_devices, load_backend

    as_json = arguments.format == "json"
    if arguments.action == "list":
        names = list_devices()
        print(json.dumps(names) if as_json else "\n".join(names))
        return EXIT_DONE
    if arguments.module in list_devices()[3:]:
        module = load_backend(arguments.module)
    else:
        # as `python -m` does, so that a module of the working directory is found
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(arguments.module)
        except ImportError as error:
            return refuse_usage("backend", f"{arguments.module} cannot be imported: {error}")
        finally:
            sys.path.remove(os.getcwd())
    from porting.conformance import check_backend

    outcomes = []
    for outcome in check_backend(module):
        outcomes.append(outcome)
        if not as_json:
            show(f"{'ok    ' if outcome.passed else 'FAILED'} {outcome.name}")
            for line in outcome.fault.splitlines():
                print(f"         {line}")
    num_failed = sum(not outcome.passed for outcome in outcomes)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        print(f"{len(outcomes)} checks of {arguments.module}: {f'{num_failed} failed' if num_failed else 'all hold'}")
    return EXIT_FAILED if num_failed else EXIT_DONE
