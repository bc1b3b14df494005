"""Run `porting run`: start a program that was written for PopTorch, unmodified, on IPUs or on the simulator."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

from porting.cli import EXIT_DONE, count
from porting.diagnostics import suggest_file
from porting.run import InstancePlan, is_simulated, run_instances, simulated_environment, vendor_environment

__all__ = ["add_arguments", "run"]

_USAGE = "%(prog)s [options] PROGRAM [arguments ...]\n       %(prog)s [options] -m MODULE [arguments ...]"
_EPILOG = """\
Where there is no IPU, `poptorch` is the simulator for the program and for every
Python that it starts, and the simulated devices count as hardware: set
PORTING_SIM_HARDWARE=0 to let `ipuHardwareIsAvailable()` be False. Nothing is
installed. Interpreters started with -I, -E or -S do not see it.

PROGRAM is a Python file (or a folder or archive with a __main__.py, or - for
stdin), or a script or command, such as torchrun, that starts Python. What
follows it belongs to it.

a session:
  $ porting run train.py --epochs 3
  simulated: poptorch is porting.simulator on this CPU; no IPU took part
  ...
  $ porting run --num-instances 2 train.py
  $ porting run torchrun --nproc-per-node 2 train.py
"""

# Errors of starting something that is no command, or that this user may not start.
_NOT_A_PROGRAM = (errno.ENOEXEC, errno.ENOENT, errno.EACCES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments; options come before the program, whatever follows it is the program's."""
    parser.usage, parser.epilog = _USAGE, _EPILOG
    parser.allow_abbrev = False
    parser.add_argument(
        "--device",
        choices=("auto", "ipu", "sim"),
        default="auto",
        help="ipu demands the vendor's PopTorch and hardware, auto takes them where they are (default: auto)",
    )
    instances = parser.add_argument_group("instances", "processes that train together, as the vendor's poprun starts")
    instances.add_argument("--num-instances", type=count, default=1, metavar="N", help="processes (default: 1)")
    instances.add_argument(
        "--num-replicas", type=count, metavar="R", help="replicas of all instances together (default: N)"
    )
    instances.add_argument("--ipus-per-replica", type=count, metavar="K", help="(default: what the program says)")
    parser.add_argument(
        "--inject",
        action="append",
        default=[],
        metavar="KIND[:key=value,...]",
        help="let the simulator fail as hardware does; `--inject list` shows the kinds",
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Become the program; this returns only with several instances, or where a process cannot become another.

    Raises DeviceError D001 when an IPU is demanded and there is none, OptionError P005 for PORTING_DEVICE.
    """
    if "list" in arguments.inject:
        from porting.simulator.trouble import describe_kinds

        print(describe_kinds())
        return EXIT_DONE
    command = _build_command(arguments)
    num_instances, num_replicas = arguments.num_instances, arguments.num_replicas or arguments.num_instances
    if num_replicas % num_instances:
        arguments.wrong_usage(f"{num_replicas} replicas do not divide into {num_instances} instances")
    is_one = num_instances == num_replicas == 1 and arguments.ipus_per_replica is None
    plan = None if is_one else InstancePlan(num_instances, num_replicas, arguments.ipus_per_replica)
    simulated = is_simulated(arguments.device)
    if not simulated and plan is not None:
        arguments.wrong_usage("on IPUs several instances are started by the vendor's poprun")
    environment = simulated_environment(os.environ) if simulated else vendor_environment(os.environ)
    environment.update(_make_trouble_environment(arguments, simulated=simulated))
    if simulated:
        print("simulated: poptorch is porting.simulator on this CPU; no IPU took part", file=sys.stderr)
    try:
        return run_instances(command, plan, environment) if plan is not None else _become_program(command, environment)
    except OSError as error:
        if error.errno not in _NOT_A_PROGRAM:
            raise
        hint = "; its first line (#!) names no interpreter" if error.errno == errno.ENOEXEC else ""
        arguments.wrong_usage(f"cannot run {command[0]}: {error.strerror}{hint}")
        raise


def _make_trouble_environment(arguments: argparse.Namespace, *, simulated: bool) -> Dict[str, str]:
    """Return the variables that pass the requested trouble to the program's processes."""
    if not arguments.inject:
        return {}
    # the simulator loads torch, so it is imported only where trouble is requested
    from porting.simulator.trouble import ENVIRONMENT_VARIABLE, parse

    if not simulated:
        arguments.wrong_usage("--inject: only the simulator fails on request")
    try:
        texts = [parse(text).text for text in arguments.inject]
    except ValueError as error:
        arguments.wrong_usage(f"--inject: {error}")
    return {ENVIRONMENT_VARIABLE: ";".join(texts)}


def _build_command(arguments: argparse.Namespace) -> List[str]:
    """Return the whole command line, interpreter included, that runs the program."""
    # options of this interpreter, such as -u or -W, are the program's as well
    python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    if arguments.module is not None:
        if not arguments.module:
            arguments.wrong_usage("argument -m: expected a module")
        return [*python, "-m", *arguments.module]
    if arguments.program[:1] == ["--"]:
        del arguments.program[0]
    if not arguments.program:
        arguments.wrong_usage("what is to be run? Name a program, or a module with -m")
    program, *words = arguments.program
    if program.startswith("-") and program != "-":
        arguments.wrong_usage(f"there is no option {program}")
    path = Path(program)
    # a script that names its interpreter, such as one for a shell that starts Python several times
    if path.suffix != ".py" and path.is_file() and os.access(path, os.X_OK):
        return [os.path.abspath(program), *words]
    if program == "-" or path.exists():
        return [*python, program, *words]
    # torchrun lies beside the interpreter, which may have been started by its path
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    found = shutil.which(program, path=os.pathsep.join(folders))
    if found is None:
        arguments.wrong_usage(": ".join(filter(None, [f"there is no file {program}", suggest_file(program)])))
    return [str(found), *words]


def _become_program(command: List[str], environment: Dict[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        # in this very process: signals, stdin, status and tracebacks of the program are then Python's own
        os.execve(command[0], command, environment)
    return subprocess.call(command, env=environment)
