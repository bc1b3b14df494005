"""Prove that a port in other words trains as it did: both run on the simulator, and every bit is compared.

It is for programs that were ports before their conversion, and have no plain training to be measured by.
"""

from __future__ import annotations

import os
import shlex
from typing import Callable, List, Tuple

from porting.convert.columns import ConvertedProgram, Proof, describe_finding, list_findings, make_column
from porting.diagnostics import PortingError, say_number
from porting.verify.exact_comparison import count_compared, find_difference
from porting.verify.observation import Observation, ProjectRun
from porting.verify.program_runs import ProgramPair, ProgramRuns

__all__ = ["prove_ports"]


def prove_ports(program: ConvertedProgram, *, num_steps: int, seed: int, tell: Callable[[str], None]) -> Proof:
    """Run the port before and after its conversion, and the old one once more, which has to train the same again."""
    old, new = (os.path.realpath(root) for root in (program.original, program.converted))
    runs = [_make_runs(program, (old,), seed, tell), _make_runs(program, (new, old), seed, tell)]
    found: List[Observation] = []
    tell(f"checking {program.script}")
    findings, is_read = list_findings(runs[1].pair.ported)
    told, lack, fault = next(map(describe_finding, findings), ""), "", ""
    for run in (runs[0], runs[0], runs[1]):
        try:
            found.append(run.run_port(num_steps, is_exact=True))
        except PortingError as error:
            said = str(error.finding.message)
            lack, fault = (lack, fault or said) if run is runs[1] else (said, fault)
            break
    if len(found) > 1:
        unrest = find_difference(*found[:2], num_steps=num_steps)
        lack = "" if unrest is None else f"the original trains otherwise each time that it is run: {unrest}"
    command = f"cd {shlex.quote(new)} && porting run --device sim {shlex.join([program.script, *program.arguments])}"
    is_whole = len(found) == 3
    starts = f"it starts, and nothing was found{'' if is_read else ' in what was read'}"
    columns = [make_column("specification", [told, fault], lack, starts, {}, command)]
    of_call = max([1, *(training.steps_per_call for one in found[:1] for training in one.trainings)])
    for name, steps in (("numeric", of_call), ("behavioral", max(of_call, num_steps))):
        difference = find_difference(found[0], found[2], num_steps=steps) if is_whole and not lack else None
        made = min(found[0].num_steps, steps) if found else 0
        compared = count_compared(found[0], found[2], num_steps=steps) if is_whole else {}
        wrong = fault or ("" if difference is None else f"the port trains otherwise than before: {difference}")
        passed = f"{say_number(made, 'step')}: every bit is that of the port before"
        columns.append(
            make_column(name, [wrong], lack, passed, {"steps": made, "compared bit by bit": compared}, command)
        )
    return Proof(tuple(columns), tuple(findings))


def _make_runs(
    program: ConvertedProgram, roots: Tuple[str, ...], seed: int, tell: Callable[[str], None]
) -> ProgramRuns:
    script = os.path.join(roots[0], program.script)
    pair = ProgramPair(script, script, program.arguments, program.arguments)
    return ProgramRuns(pair, seed, "sim", tell, ProjectRun(roots, str(program.working)))
