"""Let calls of a model that train nothing go to the inference of its port.

Behind `eval()` a port's call does so by itself. A loop that evaluates without it gets the inference by name, where no
layer of the program tells training and evaluation apart.
"""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Tuple

from porting.convert.editing import FileEdits
from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import ProgramFile, write_node
from porting.source.facts import Call, Kind

__all__ = ["port_evaluations"]

_MODES = re.compile(r"[Dd]ropout|BatchNorm|RReLU|\.training\b")


def port_evaluations(program: Program, step: TrainingStep, edits: Dict[str, FileEdits]) -> List[ProgramFile]:
    """Plan the edits of evaluations, and return the files that name a port for them.

    Raises StepError for one that a port would compute otherwise.
    """
    changed = []
    for found, fact in list(_iter_others(program, step)):
        if fact.where.in_evaluation or _follows_eval(program, found):
            continue
        if any(_MODES.search(file.unit.text) for file in program.files.values()) or _is_of_library(program, fact):
            raise StepError(found.file, found.call, "the model is called without `eval()`", "call `eval()` before it")
        name = write_node(found.call.func)
        code = f"({name}.inference() if isinstance({name}, PortedModel) else {name})"
        edits[found.file.path].replace(found.call.func, code, "evaluation", "a port's call without a step is inference")
        changed.append(found.file)
    return changed


def _iter_others(program: Program, step: TrainingStep) -> Iterator[Tuple[Found, Call]]:
    """Iterate over the calls of the step's model that are none of the step."""
    models = [one for fact in program.list_facts(step.call)[-1:] for one in fact.receiver]
    for found in program.list_sites(Role.FORWARD, Role.EVALUATION):
        is_own = found.call is step.call or found.call in ast.walk(step.unit)
        is_in_helper = step.helper is not None and found.file.find_function(found.call) is step.helper.function
        for fact in program.list_facts(found.call)[-1:]:
            if not is_own and not is_in_helper and any(one in models for one in fact.receiver):
                yield found, fact


def _follows_eval(program: Program, found: Found) -> bool:
    """Tell whether `eval()` is called before in the function of a call."""
    file, calls = found.file, [one.node for one in program.facts.list_methods("eval") if one.is_on(Kind.MODULE)]
    own = [one for one in calls if file.find_scope(one) is file.find_scope(found.call)]
    return any(file.holds(one) and one.lineno < found.call.lineno for one in own)


def _is_of_library(program: Program, fact: Call) -> bool:
    """Tell whether a model is a library's, whose layers were not read."""
    own = {f"{file.module_name}." for file in program.files.values()}
    names = [one.name for one in fact.receiver]
    return any(not name.startswith(("torch.nn.", *own)) for name in names)
