"""Prove that a ported program trains as a plain one: both are run as they are, each in a process of its own.

`porting verify --against` uses it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, NoReturn, Sequence, Tuple

import torch

from porting.diagnostics import ExecutableError, PortingError, say_number
from porting.run import is_simulated, simulated_environment, vendor_environment
from porting.support.bound_process import describe_exit, make_environment
from porting.verify.certificate import Certificate, Location, Measured
from porting.verify.compare import KINDS
from porting.verify.judgement import STOPPED, Judgement, find_first
from porting.verify.observation import Observation, Task
from porting.verify.plain_runs import PLAIN, Perturbation
from porting.verify.plain_side import HOPELESS, look_closer, round_again
from porting.verify.program_comparison import ProgramComparison
from porting.verify.records import find_phase
from porting.verify.runs import find_smallest_fault
from porting.verify.surroundings import describe_surroundings, hash_values

__all__ = ["ProgramPair", "ProgramRuns", "start_process", "verify_programs"]

_SHOWN_LINES = 5
_START = "from porting.verify.observed_program import main; main()"
_OF_PARAMETERS = ("gradient", "update", "parameter", "buffer")


@dataclass(frozen=True)
class ProgramPair:
    """The scripts of a ported and of a plain program, and the arguments of each."""

    ported: str
    plain: str
    arguments: Tuple[str, ...] = ()
    plain_arguments: Tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramRuns:
    """How two programs are run: until they have made some optimizer steps, from one seed."""

    pair: ProgramPair
    seed: int
    device: str
    tell: Callable[[str], None]

    def run_port(self, num_steps: int) -> Observation:
        """Run the ported program; raises as `run_plain` does."""
        self.tell(f"the port: {self.pair.ported}")
        change = simulated_environment if is_simulated(self.device) else vendor_environment
        task = Task(os.path.abspath(self.pair.ported), self.pair.arguments, num_steps, self.seed, is_port=True)
        return _run_tasks([task], change(make_environment()))[0]

    def run_plain(self, num_steps: int, *perturbations: Perturbation) -> List[Observation]:
        """Run the plain program once for each perturbation.

        Raises ExecutableError E021 where it fails before its first step, PortingError V002 where it makes none.
        """
        self.tell(f"plain PyTorch, {say_number(len(perturbations), 'time')}: {self.pair.plain}")
        task = Task(os.path.abspath(self.pair.plain), self.pair.plain_arguments, num_steps, self.seed)
        return _run_tasks(
            [replace(task, perturbation=perturbation) for perturbation in perturbations],
            vendor_environment(make_environment()),
        )


def verify_programs(
    pair: ProgramPair,
    *,
    num_steps: int,
    seed: int,
    device: str = "auto",
    tell: Callable[[str], None] = lambda _stage: None,
) -> Certificate:
    """Run both programs for some optimizer steps from the same seed, and certify whether they train the same.

    Raises ExecutableError E021 for one that fails before its first step, PortingError V002 for one that makes none.
    """
    started = time.perf_counter()
    runs = ProgramRuns(pair, seed, device, tell)
    ported = runs.run_port(num_steps)
    per_call = max(training.steps_per_call for training in ported.trainings)
    num_made = -(-num_steps // per_call) * per_call
    otherwise = Perturbation("another order of sums", changes_bits=1, num_threads=max(1, torch.get_num_threads() // 2))
    plain, again, rounded = runs.run_plain(num_made, PLAIN, PLAIN, otherwise)
    comparison = ProgramComparison(plain, ported)
    missing = comparison.runs.missing = [*comparison.iter_missing(), *_iter_short(pair, plain, ported, num_steps)]
    comparison.runs.notes += comparison.iter_notes()
    unequal = comparison.add_runs(again)
    comparison.add_runs(rounded)
    if unequal:
        missing.append(f"the training is another one each time that plain PyTorch runs it: {unequal}")

    def round_otherwise(number: int, _judgement: Judgement) -> bool:
        comparison.add_runs(*runs.run_plain(num_made, round_again(1 + number, comparison.runs.unit)))
        return True

    is_stopped = False
    try:
        judgement = look_closer(comparison.judge, round_otherwise, HOPELESS)
    except KeyboardInterrupt:
        judgement, is_stopped = comparison.judge(), True
    if any(comparison.iter_missing()):
        judgement.leave_out_drawn("random numbers are drawn for other micro-batches")
    reasons = _collect_reasons(ported).items()
    judgement.reasons.update((kind, reason) for kind, reason in reasons if kind not in judgement.measured)
    first = find_first(judgement)
    return comparison.runs.certify(
        judgement,
        ended_by=STOPPED if is_stopped else _describe_end(pair.plain, plain) or _describe_end(pair.ported, ported),
        is_stopped=is_stopped,
        num_steps_asked=num_made,
        sensitivity=find_smallest_fault(judgement, comparison.runs.band),
        comparison=f"the program `{pair.plain}`",
        location=None if first is None else _find_location(first, comparison, ported),
        program=pair.ported,
        settings={
            "steps": num_steps,
            "seed": seed,
            "against": pair.plain,
            "arguments": list(pair.arguments),
            "plain_arguments": list(pair.plain_arguments),
        },
        surroundings=describe_surroundings(seeds={"all": seed}),
        hashes={"source": hash_values([[Path(script).read_bytes() for script in (pair.ported, pair.plain)]])},
        seconds=time.perf_counter() - started,
    )


def _iter_short(pair: ProgramPair, plain: Observation, ported: Observation, num_steps: int) -> Iterator[str]:
    for script, observed in ((pair.plain, plain), (pair.ported, ported)):
        made = max(training.record.num_steps for training in observed.trainings)
        if made < num_steps and not observed.error:
            yield f"`{script}` makes {made} of {num_steps} steps"


def _collect_reasons(ported: Observation) -> Dict[str, str]:
    """Say why kinds are not compared that a program does not show."""
    reasons = dict.fromkeys(("loop state", "reloading", "resuming", "fresh process"), "programs are run as they are")
    reasons["output"] = "the model of a program need not return what another one returns"
    reasons["input"] = "of whole programs it is not looked at"
    reasons["evaluation"] = "it is where both evaluate after the same step"
    if ported.trainings[0].is_on_device:
        reasons.update(dict.fromkeys(("loss", "loss curve"), "the port returns those of some micro-batches alone"))
        reasons["optimizer state"] = "it stays on the device; each update that is made of it is compared"
        if not ported.trainings[0].record.list_steps("gradient"):
            reasons["gradient"] = "the port keeps them on the device: `PortOptions(keep_gradients=True)`"
    return reasons


def _describe_end(script: str, observed: Observation) -> str:
    steps = max(training.record.num_steps for training in observed.trainings)
    return f"`{script}` ended after step {steps}: {observed.error}" if observed.error else ""


def _find_location(first: Measured, comparison: ProgramComparison, ported: Observation) -> Location:
    """Say where a difference begins: in the loss's line of the ported program, or in that of the optimizer's step."""
    # outputs are losses, of further optimizers
    phase = "loss" if first.kind == "output" else find_phase(first.kind)
    places = ported.trainings[comparison.find_training(first.name)].places
    place = places["update" if phase in ("update", "schedule") else "loss"]
    if place is not None:
        place = replace(place, file=os.path.relpath(place.file))
    module = first.name.rpartition(".")[0] if first.kind in _OF_PARAMETERS else ""
    return Location(
        phase,
        first.step,
        module,
        place=place,
        cause=f"`{first.name}`: {first.note}" if first.note else KINDS.get(first.kind, ""),
    )


# -- runs --------------------------------------------------------------------------------------------------------------


def _run_tasks(tasks: Sequence[Task], environment: Mapping[str, str]) -> List[Observation]:
    """Run one script in one process, or in as many forks of it as there are tasks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, _task in enumerate(tasks):
            _link_folder(Path.cwd(), folder / str(number))
        (folder / "tasks").write_bytes(pickle.dumps(tasks))
        with (folder / "log").open("wb") as log:
            status = start_process(
                [sys.executable, "-c", _START, str(folder)], {**environment, "PYTHONHASHSEED": "0"}, log
            )
        said = (folder / "log").read_text("utf-8", "replace")
        files = [folder / f"{number}.found" for number, _task in enumerate(tasks)]
        found = [pickle.loads(file.read_bytes()) if file.exists() else Observation() for file in files]
    for observed in found:
        if not observed.trainings:
            _refuse_run(tasks[0].script, observed, describe_exit(status, said) if status else "", said)
    return found


def start_process(command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> int:
    """Run a command to its end with all that it says in `log`, and return its status; interrupted, it ends at once."""
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    try:
        return process.wait()
    except BaseException:
        # with its forks, which nobody waits for any more
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _link_folder(folder: Path, working: Path) -> None:
    """Make a working folder in which a program finds what lies in `folder`, and leaves what it makes."""
    working.mkdir()
    for entry in folder.iterdir():
        (working / entry.name).symlink_to(entry)


def _refuse_run(script: str, observed: Observation, ended: str, said: str) -> NoReturn:
    if not observed.error and not ended:
        raise PortingError.of(
            "V002",
            message=f"`{os.path.relpath(script)}` makes no step of an optimizer",
            help="name a program that trains when it is run, and give it its arguments: `--args=...`",
        )
    script = os.path.relpath(script)
    lines = [line for line in said.splitlines() if line.strip()][-_SHOWN_LINES:]
    raise ExecutableError.of(
        "E021",
        message=f"running `{script}` failed: {observed.error or ended}",
        place=observed.place,
        notes=("the last that it wrote:", *lines) if lines else (),
        help="run it alone first, from this folder and with the same arguments",
    )
