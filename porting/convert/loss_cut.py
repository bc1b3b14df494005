"""Cut the loss out of a training step: its statements, what they read of the batch, and what stays the same.

What depends on the model's output and leads to the loss is the loss; all else between forward and backward pass stays.
"""

from __future__ import annotations

import ast
from typing import List, Optional, Sequence, Set

from porting.convert.changing_values import is_number
from porting.convert.names import collect_reads, collect_writes, get_root, iter_chains, iter_units
from porting.convert.program import Program
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import LOOPS, ProgramFile, list_parameters, list_targets, write_node
from porting.source.facts import Kind

__all__ = ["cut_loss", "read_outputs"]

_GIVE_ZEROS = "begin with a tensor of zeros"
_SHAPES = (".size(", ".shape", "len(")


def read_outputs(file: ProgramFile, call: ast.Call) -> List[str]:
    """Return the names that a call's result gets; none where the call is a part of an expression."""
    statement = file.get_statement(call)
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        names = list_targets(statement)
        if all(name.isidentifier() for name in names):
            return names
        raise StepError(file, statement, f"the output is kept as `{', '.join(names)}`, which others may read later")
    if isinstance(statement, (ast.Assign, ast.Expr, ast.AnnAssign)):
        return []
    raise StepError(file, statement, "the model's call stands where no other can take its place")


def cut_loss(program: Program, step: TrainingStep, call: ast.Call) -> None:
    """Find the loss of a step whose model or helper is called by `call`; raises StepError if it is no function."""
    _name_outputs(step, call)
    units = _list_between(step)
    for one in (node for unit in units for node in ast.walk(unit)):
        if isinstance(one, (ast.Continue, ast.Break, ast.Return)):
            raise StepError(step.file, one, "the step is left out by what is known after the model's call")
    of_output = _collect_of_output(step, units)
    needed = collect_reads(step.loss)
    chosen: List[ast.stmt] = []
    for unit in reversed(units):
        if unit is step.unit and not step.is_nested or not collect_writes(unit) & needed:
            continue
        if unit in of_output or _is_fixed(unit):
            chosen.insert(0, unit)
            needed |= collect_reads(step.read_unit(unit))
    step.loss_units = chosen
    free = needed - {name for unit in chosen for name in collect_writes(unit)} - set(step.outputs)
    step.prelude = _list_prelude(step)
    varying = {name for name in free if _varies(step, name)}
    if not varying:  # the whole of the data in each step
        varying = {name for name in free if _is_tensor(program, step, name)}
    step.constants = free - varying
    step.labels = _list_labels(step, varying)
    step.position = _find_position(step, units, of_output, varying)
    _check_inputs(step)


def _check_inputs(step: TrainingStep) -> None:
    """Raise StepError for an input that is no tensor in the first step: a static graph has it in none, or in all."""
    file = step.file if step.helper is None else step.helper.file
    scope = file.find_scope(step.call)
    for name in sorted(collect_reads(*step.call.args)):
        for one in file.iter_assignments(name, scope):
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant) and one.value.value is None:
                raise StepError(file, one, f"`{name}` is None in the first step, and a tensor later", _GIVE_ZEROS)


def _name_outputs(step: TrainingStep, call: ast.Call) -> None:
    """Find the names of the model's output in the function of the step, or give it one."""
    names = read_outputs(step.file, call)
    helper = step.helper
    if helper is not None:
        made = read_outputs(helper.file, step.call)
        outputs = [name for name, one in zip(names, helper.elements) if [one] == made]
        if len(names) != len(helper.elements) or len(outputs) != 1:
            raise StepError(step.file, call, f"`{helper.function.name}` returns something else than the model's output")
        step.outputs = outputs
    elif names:
        step.outputs = names
    else:
        step.is_nested = True
        used = {one.id for one in ast.walk(step.scope) if isinstance(one, ast.Name)}
        step.outputs = ["output" if "output" not in used else "model_output"]


def _list_between(step: TrainingStep) -> List[ast.stmt]:
    """List the statements from the forward to the backward pass, in the block that has both."""
    for block, number in reversed(step.file.list_blocks(step.file.get_statement(step.backward))):
        units = list(iter_units(block[: number + 1]))
        if step.unit in units:
            place = units.index(step.unit)
            end = next((n for n, one in enumerate(units) if step.backward in ast.walk(one)), 0)
            return units[place : max(end, place + 1)]
    raise StepError(step.file, step.backward, "forward and backward pass do not follow each other in one block")


def _collect_of_output(step: TrainingStep, units: Sequence[ast.stmt]) -> Set[ast.stmt]:
    """Collect the statements that depend on the output."""
    tainted = set(step.outputs)
    found: Set[ast.stmt] = set()
    for unit in units:
        if unit is step.unit and not step.is_nested:
            continue
        if collect_reads(step.read_unit(unit)) & tainted:
            found.add(unit)
            tainted |= collect_writes(unit)
    return found


def _is_fixed(unit: ast.stmt) -> bool:
    """Tell whether a statement takes a number, or one of a tensor's shape, which a loss may do as well."""
    if not isinstance(unit, ast.Assign):
        return False
    return isinstance(unit.value, ast.Constant) or any(word in write_node(unit) for word in _SHAPES)


def _list_prelude(step: TrainingStep) -> List[ast.stmt]:
    """List what sums of the loss begin with; raises StepError for a sum that goes on from step to step."""
    written: Set[str] = set()
    opened: Set[str] = set()
    for unit in step.loss_units:
        opened |= collect_reads(step.read_unit(unit)) - written
        written |= collect_writes(unit)
    found: List[ast.stmt] = []
    for name in sorted(opened & written - set(step.outputs)):
        before = [one for one in step.file.iter_assignments(name, step.scope) if one.lineno < step.unit.lineno]
        loop = step.file.find_loop(step.backward)
        begins = [one for one in before if isinstance(one, ast.Assign) and step.file.find_loop(one) is loop]
        if not begins or not isinstance(begins[-1].value, ast.Constant):
            raise StepError(step.file, step.backward, f"`{name}` is added up before the model is called")
        found.append(begins[-1])
    return found


def _varies(step: TrainingStep, name: str) -> bool:
    """Tell whether a name holds something else in each step."""
    file = step.file
    if name in {*list_parameters(step.scope)} - {"self"}:
        return file.find_loop(step.backward) is None
    loops = [one for one in file.iter_above(step.backward) if isinstance(one, LOOPS)]
    assigned = list(file.iter_assignments(name, step.scope))
    if not loops:  # a function that makes one step
        return bool(assigned) and step.function is not None
    return any(loop in (one, *file.iter_above(one)) for loop in loops for one in assigned)


def _is_tensor(program: Program, step: TrainingStep, name: str) -> bool:
    """Tell whether a name that stays the same is a tensor, by what the walk says of the loss's arguments."""
    facts = program.list_facts(*(one for unit in step.loss_units for one in ast.walk(unit)))
    if any(get_root(call.node.func) == name and not call.receiver for call in facts):
        return False
    pairs = [pair for call in facts for pair in zip(call.node.args, call.arguments)]
    kinds = {one.kind for node, objects in pairs if name in collect_reads(node) for one in objects}
    return bool(kinds & {Kind.TENSOR, Kind.BATCH})


def _list_labels(step: TrainingStep, varying: Set[str]) -> List[str]:
    """List what the loss reads of the batch; raises StepError for values of the host."""
    body = [*(step.read_unit(unit) for unit in step.loss_units), ast.Expr(step.loss)]
    texts = list(dict.fromkeys(write_node(one) for one in iter_chains(ast.Module(body, []), varying)))
    texts = [one for one in texts if not any(one.startswith((f"{other}.", f"{other}[")) for other in texts)]
    for name in sorted(varying):
        for one in step.file.iter_assignments(name, step.scope):
            if _is_number(one, name):
                raise StepError(step.file, one, f"the loss reads `{name}`, a number that changes from step to step")
    return texts


def _is_number(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.For):
        text, target = write_node(statement.iter), statement.target
        is_counted = text.startswith("enumerate(") and isinstance(target, ast.Tuple)
        return text.startswith("range(") or is_counted and list_targets(statement)[0] == name
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call):
        return is_number(value) or write_node(value.func).endswith(".item")
    is_sum = isinstance(value, (ast.Constant, ast.BinOp))
    return is_sum and not any(isinstance(one, ast.Call) for one in ast.walk(statement))


def _find_position(
    step: TrainingStep, units: Sequence[ast.stmt], of_output: Set[ast.stmt], varying: Set[str]
) -> Optional[ast.stmt]:
    """Find where the device is called: behind what makes the labels; None for the place of the forward call."""
    made = [n for n, unit in enumerate(units) if n and collect_writes(unit) & varying and unit not in step.loss_units]
    if not made or step.helper is not None:
        return None
    behind = [unit for unit in units[made[-1] + 1 :] if unit in step.loss_units]
    early = [unit for unit in units[1 : made[-1] + 1] if unit in of_output]
    if early or not behind:
        raise StepError(step.file, units[made[-1]], "labels are made behind what reads the output")
    return behind[0]
