"""Prove a conversion by running both projects: the converted one with the old command line, and its port.

There are three columns, and each says what it claims, why, and by which command somebody else repeats it. What was not
run is not claimed. Nothing is written into either project: programs run in copies.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from porting.convert.columns import Column, ConvertedProgram, Proof, describe_finding, list_findings, make_column
from porting.diagnostics import Finding, PortingError, join_names, say_number
from porting.run import vendor_environment
from porting.source.files import list_sources
from porting.support.bound_process import make_environment
from porting.verify.certificate import Certificate, Measured, Verdict, describe_location, describe_measured
from porting.verify.exact_comparison import Difference, count_compared, find_difference
from porting.verify.judgement import Judgement
from porting.verify.observation import OUT_OF_TIME, Observation, ProjectRun
from porting.verify.plain_runs import PLAIN, Perturbation
from porting.verify.program_proof import ROUNDED, certify_programs, count_made
from porting.verify.program_runs import ProgramPair, ProgramRuns, observe_tasks

__all__ = ["prove_conversion"]

_ONE_THREAD = Perturbation("one thread", num_threads=1)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
# libraries that answer `--help`
_COMMAND_LINES = re.compile(rb"\b(argparse|click|typer|fire|absl|docopt|hydra|tyro|simple_parsing|HfArgumentParser)\b")
_FIRST = ("output", "loss", "gradient")


def prove_conversion(
    program: ConvertedProgram,
    *,
    num_steps: int,
    seed: int,
    tell: Callable[[str], None],
    limit_seconds: int = 600,
) -> Proof:
    """Run a program before and after, plain and on the simulator, each run for at most `limit_seconds`."""
    trial = _Trial(program, num_steps, seed, tell, limit_seconds)
    trial.run()
    columns = trial.judge_specification(), trial.judge_first_step(), trial.judge_training()
    return Proof(columns, tuple(trial.findings))


class _Trial:
    """The runs of one program before and after, and what they show."""

    def __init__(
        self, program: ConvertedProgram, num_steps: int, seed: int, tell: Callable[[str], None], limit_seconds: int
    ) -> None:
        old, new = (os.path.realpath(root) for root in (program.original, program.converted))
        scripts = os.path.join(new, program.script), os.path.join(old, program.script)
        working = str(program.working)
        pair = ProgramPair(*scripts, (*program.arguments, *program.port_arguments), program.arguments)
        projects = ProjectRun((new, old), working, limit_seconds), ProjectRun((old,), working, limit_seconds)
        self._runs = ProgramRuns(pair, seed, "sim", tell, *projects)
        on_cpu = ProgramPair(scripts[0], scripts[0], program.arguments, program.arguments)
        self._cpu_runs = replace(self._runs, pair=on_cpu, plain_project=projects[0])
        self._program, self._num_asked, self._tell = program, num_steps, tell
        self._plains: List[Observation] = []
        self._cpu, self._helps = Observation(), [Observation(), Observation()]
        self.findings: Sequence[Finding] = ()
        self._found, self._check = "nothing was found", "porting check"
        self._ported: Optional[Observation] = None
        self._certified: Optional[Tuple[Certificate, Judgement]] = None
        self._refused = ""

    # -- runs ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run what there is to run; what fails is kept, and told by the columns."""
        self._look_at_source()
        for steady in (PLAIN, _ONE_THREAD):
            *self._plains, self._helps[0] = self._observe(self._runs, "the original", steady, steady, ROUNDED)
            if not self._plains[0].trainings or self._find_unrest() is None:
                break
        if not self._plains[0].trainings:
            return
        if self._program.has_host_path:
            what = "the converted program without a device"
            self._cpu, self._helps[1] = self._observe(self._cpu_runs, what, steady)
        else:
            self._cpu, self._helps[1] = self._plains[0], self._helps[0]
        try:
            self._ported = self._runs.run_port(self._num_asked)
            self._certified = self._certify(self._ported)
        except PortingError as error:
            self._refused = str(error.finding.message)

    def _look_at_source(self) -> None:
        self._tell(f"checking {self._program.script}")
        self.findings, is_read = list_findings(self._runs.pair.ported)
        if not is_read:
            self._found, self._check = "nothing was found in what was read", "porting check --allow-unread"

    def _observe(self, runs: ProgramRuns, what: str, *perturbations: Perturbation) -> List[Observation]:
        """Run a program under each perturbation, and call it for help; the last observation is empty if it has none."""
        task = runs.make_plain_task(self._num_asked)
        assert task.project is not None
        sources = list_sources(task.project.roots[0])[0]
        answers = any(_COMMAND_LINES.search(Path(path).read_bytes()) for path in sources)
        self._tell(f"{what}: {self._program.script}")
        tasks = [replace(task, perturbation=one) for one in perturbations]
        tasks += [replace(task, arguments=("--help",), num_steps=1)] if answers else []
        found = observe_tasks(tasks, vendor_environment(make_environment()))
        return found if answers else [*found, Observation()]

    def _certify(self, ported: Observation) -> Tuple[Certificate, Judgement]:
        num_made = count_made(ported, self._num_steps)
        plains: Sequence[Observation] = self._plains
        if num_made > self._num_asked:
            plains = self._runs.run_plain(num_made, PLAIN, PLAIN, ROUNDED)
        return certify_programs(self._runs, ported, plains, num_steps=self._num_steps)

    # -- what they show ------------------------------------------------------------------------------------------------

    @property
    def _num_steps(self) -> int:
        """The steps that are compared: no more than the original makes."""
        return min(self._num_asked, self._plains[0].num_steps)

    def _find_unrest(self) -> Optional[Difference]:
        """Find where the original trains otherwise when it is run again."""
        return find_difference(*self._plains[:2], num_steps=self._num_asked)

    def _find_lack(self, num_steps: int) -> str:
        """Say why the original is no measure for these steps; nothing if it is one."""
        original = self._plains[0]
        if not original.trainings:
            return f"the original does not train here: {original.error or 'it makes no step of an optimizer'}"
        if not all(again.trainings for again in self._plains):
            return f"the original does not train each time that it is run: {self._plains[-1].error}"
        if original.error and original.num_steps < num_steps:
            return f"the original ended after {say_number(original.num_steps, 'step')}: {original.error}"
        for what, observed in (("converted program", self._cpu), ("port", self._ported or Observation())):
            if observed.is_cut and observed.num_steps < num_steps:
                return f"the {what} made {say_number(observed.num_steps, 'step')}: {observed.error}"
        if self._ported is None and OUT_OF_TIME in self._refused:
            return f"the port does not train: {self._refused}"
        unrest = self._find_unrest()
        if unrest is not None and unrest.step <= num_steps:
            return f"the original trains otherwise each time that it is run: {unrest}"
        return ""

    def _find_difference(self, num_steps: int) -> str:
        """Say what the converted program does otherwise than the original without a device."""
        cpu = self._cpu
        if not cpu.trainings:
            fault = f"the converted program does not train: {cpu.error or 'it makes no step of an optimizer'}"
            return "" if cpu.is_cut else fault
        made = min(num_steps, cpu.num_steps) if cpu.is_cut else num_steps
        found = find_difference(self._plains[0], cpu, num_steps=made)
        why = f"; it ended: {cpu.error}" if cpu.error and found is not None and found.name == "steps" else ""
        return "" if found is None else f"without a device it does not train as the original: {found}{why}"

    def _find_port_fault(self) -> str:
        """Say why the port has not trained at all, or not on the device."""
        if self._ported is None:
            return "" if OUT_OF_TIME in self._refused else f"the port does not train: {self._refused}"
        if not self._ported.trainings or self._certified is None:
            return f"the port cannot be compared: {self._refused}"
        on_host = [
            number + 1
            for number, training in enumerate(self._ported.trainings)
            # one without shapes trains tensors of no model, which no device has
            if training.record.losses.get(1)
            and training.shapes
            and training.num_device_steps < training.record.num_steps
        ]
        if on_host or not any(training.num_device_steps for training in self._ported.trainings):
            return f"the port does not train on the device: steps of optimizer {(on_host or [1])[0]} use none"
        return ""

    # -- columns -------------------------------------------------------------------------------------------------------

    def judge_specification(self) -> Column:
        """Judge whether the converted project starts as the old one, and whether `porting check` finds nothing."""
        old, new = (set(_OPTION.findall(one.said)) if _is_help(one) else set() for one in self._helps)
        wanted = {word for word in self._program.port_arguments if word.startswith("-")} if old or new else set()
        lacking = sorted((old | wanted) - new) if self._cpu.trainings else []
        numbers = {
            "findings of porting check": len(self.findings),
            "options kept": len(old & new),
            "options added": len(new - old),
        }
        more = f", and {len(self.findings) - 1} more" if len(self.findings) > 1 else ""
        faults = [f"{describe_finding(one)}{self._say_place(one)}{more}" for one in self.findings[:1]]
        faults += [f"`--help` does not list `{lacking[0]}`"] if lacking else []
        lack = self._find_lack(1)
        faults += [] if lack else [self._find_difference(1)]
        passed = f"it starts with the old command line, its first step is the original's, and {self._found}"
        command = f"{self._check} {shlex.quote(self._runs.pair.ported)}"
        return make_column("specification", faults, lack, passed, numbers, f"{command} && {self._say_start()}")

    def _say_place(self, finding: Finding) -> str:
        if finding.place is None:
            return ""
        # what did not change is a link to the old file
        roots = [os.path.realpath(root) for root in (self._program.converted, self._program.original)]
        file = os.path.realpath(finding.place.file)
        return f" ({min((os.path.relpath(file, root) for root in roots), key=len)}:{finding.place.line})"

    def judge_first_step(self) -> Column:
        """Judge outputs, loss and gradients of the first step: of the port, and without a device."""
        lack = self._find_lack(1)
        numbers: Dict[str, Any] = {}
        faults = [] if lack else [self._find_difference(1), self._find_port_fault()]
        if not lack and not any(faults):
            fault, missing, numbers = self._compare_first_step()
            faults, lack = [fault], missing
            numbers["equal bits"] = sum(count_compared(self._plains[0], self._cpu, num_steps=1).values())
        passed = f"{join_names([kind for kind in _FIRST if kind in numbers], quote='')} of the first step are equal"
        return make_column("numeric", faults, lack, passed, numbers, self._say_verify(1))

    def _compare_first_step(self) -> Tuple[str, str, Dict[str, Any]]:
        """Return a fault of the port's first step, what of it was not compared, and how far it is off by kind."""
        assert self._certified is not None
        _certificate, judgement = self._certified
        found = {kind: _list_first(judgement.measured.get(kind, [])) for kind in _FIRST}
        outside = [one for own in found.values() for one in own if not one.is_inside]
        numbers: Dict[str, Any] = {kind: _count_measured(own) for kind, own in found.items() if own}
        if outside:
            return f"the port's first step is another one: {describe_measured(outside[0])}", "", numbers
        missing = [kind for kind in ("loss", "gradient") if not found[kind]]
        reasons = [judgement.reasons.get(kind, "there is none") for kind in missing]
        said = [f"the {kind} of the first step was not compared: {why}" for kind, why in zip(missing, reasons)]
        return "", said[0] if said else "", numbers

    def judge_training(self) -> Column:
        """Judge all steps: the port's by the certificate of `porting verify`, and bit by bit without a device."""
        steps = self._num_steps if self._plains[0].trainings else self._num_asked
        asked = self._num_asked if self._plains[0].error else steps
        lack, faults = self._find_lack(asked), [""]
        numbers: Dict[str, Any] = {"steps": steps}
        if not lack or self._find_lack(1) == "":
            faults = [self._find_difference(min(steps, self._count_steady())), self._find_port_fault()]
        # by a program that is no measure nothing is a fault of its port
        if self._certified is not None and not any(faults) and self._find_unrest() is None:
            certificate = self._certified[0]
            fault, missing = self._read_certificate(certificate)
            faults, lack = [fault], lack or missing
            compared = count_compared(self._plains[0], self._cpu, num_steps=steps)
            numbers.update({"verdict": certificate.verdict.value, "compared bit by bit": compared})
        whole = say_number(steps, "step")
        whole = f"all {whole} that it makes" if steps < self._num_asked else whole
        on_host = ", and without a device every bit is the same" if self._program.has_host_path else ""
        passed = f"{whole}: the port trains as the original{on_host}"
        return make_column("behavioral", faults, lack, passed, numbers, self._say_verify(self._num_asked))

    def _count_steady(self) -> int:
        """Count the first steps that the original makes in the same way each time."""
        unrest = self._find_unrest()
        return self._num_asked if unrest is None else unrest.step - 1

    def _read_certificate(self, certificate: Certificate) -> Tuple[str, str]:
        """Return what is wrong with the port's training by its certificate, and what that leaves open."""
        assert self._ported is not None
        if certificate.verdict is Verdict.FAIL:
            place = {} if certificate.location is None else dict(describe_location(certificate.location))
            line = f" ({place['line']})" if place.get("line") else ""
            return f"{certificate.reason}{line}", ""
        # a program that ends with an error of its own does so as a port, too
        is_own = bool(self._plains[0].error) and self._ported.num_steps >= self._num_steps
        if self._ported.error and not self._ported.is_cut and not is_own:
            return f"the port ended after {say_number(self._ported.num_steps, 'step')}: {self._ported.error}", ""
        if self._ported.num_steps < self._num_steps and not self._ported.is_cut:
            return f"the port makes {self._ported.num_steps} of {self._num_steps} steps", ""
        return "", "" if certificate.holds else certificate.reason

    # -- commands ------------------------------------------------------------------------------------------------------

    def _say_start(self) -> str:
        folder = self._find_working(self._program.converted)
        script = os.path.relpath(self._runs.pair.ported, folder)
        return f"cd {shlex.quote(folder)} && {shlex.join(['python', script, *self._program.arguments])}"

    def _find_working(self, root: Path) -> str:
        return os.path.normpath(os.path.join(os.path.realpath(root), self._program.working))

    def _say_verify(self, num_steps: int) -> str:
        pair = self._runs.pair
        words = ["porting", "verify", pair.ported, "--against", pair.plain, f"--args={shlex.join(pair.arguments)}"]
        words += [f"--against-args={shlex.join(pair.plain_arguments)}", "--device", "sim"]
        command = shlex.join([*words, "--steps", str(num_steps), "--seed", str(self._runs.seed)])
        return f"cd {shlex.quote(self._find_working(self._program.original))} && {command}"


def _is_help(observed: Observation) -> bool:
    """Tell whether a program answered a call for help, and did not train, or fail, instead."""
    return not observed.trainings and not observed.error and bool(observed.said.strip())


def _list_first(measured: Sequence[Measured]) -> List[Measured]:
    """List what was measured in the first step that is known, which is the last one of a device's first call."""
    first = min((one.step for one in measured), default=0)
    return [one for one in measured if one.step == first]


def _count_measured(measured: Sequence[Measured]) -> Dict[str, Any]:
    return {"compared": len(measured), "of band": max(one.factor for one in measured), "in step": measured[0].step}
