"""Find what a loop does on the host and a device's call does itself: gradients cleared and clipped, the step made."""

from __future__ import annotations

import ast
from typing import Dict, List, Optional, Sequence

from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import Function, ProgramFile, find_keyword, write_node
from porting.source.facts import Kind, ProgramObject

__all__ = ["check_host_calls", "list_host_calls", "read_optimizer"]

_OF_DEVICE = ("SGD", "Adam", "AdamW", "RMSprop")
_TAKE_ANOTHER = f"take one that the device has ({', '.join(_OF_DEVICE)}), or convert with `--style minimal`"
_HOST = (Role.ZERO_GRAD, Role.BACKWARD, Role.CLIP, Role.STEP)


def list_host_calls(program: Program, file: ProgramFile, function: Optional[Function]) -> List[ast.Call]:
    """List the calls of a function that a device's call makes itself, and those on a `GradScaler`."""
    found = [one.call for one in program.list_sites(*_HOST)]
    found += [one.node for one in program.facts.calls if one.is_on(Kind.SCALER) and not one.is_method("scale")]
    found += [one.node for one in program.facts.list_methods("zero_grad")]
    return [one for one in dict.fromkeys(found) if file.holds(one) and file.find_function(one) is function]


def read_optimizer(file: ProgramFile, backward: ast.Call, steps: Sequence[Found], host: Sequence[ast.Call]) -> ast.expr:
    """Return the optimizer whose steps are made; raises StepError for several, and for one with a closure."""
    found: Dict[str, ast.expr] = {}
    for call in host:
        if any(one.call is call for one in steps) and isinstance(call.func, ast.Attribute):
            if call.args or call.keywords:
                raise StepError(file, call, "the optimizer calls a closure in its step")
            found[write_node(call.func.value)] = call.func.value
        elif _get_method(call) == "step" and call.args:  # a scaler's
            found[write_node(call.args[0])] = call.args[0]
    if len(found) > 1:
        raise StepError(file, backward, f"{len(found)} optimizers make their steps in the loop")
    if not found:
        raise StepError(file, backward, "the optimizer's step does not stand in the function of the backward pass")
    return next(iter(found.values()))


def _get_method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def check_host_calls(program: Program, step: TrainingStep, calls: Sequence[ast.Call]) -> None:
    """Note what a device's call does of the step; raises StepError for what it would do otherwise than the loop."""
    file = step.file
    if not any(_get_method(call) == "zero_grad" for call in calls):
        raise StepError(file, step.backward, "nothing clears the gradients, which are added up from step to step")
    at_step = next(call for call in calls if _get_method(call) == "step")
    for one in _list_optimizers(program, at_step):
        name = one.name.rpartition(".")[2]
        # an `Optimizer` is one that the command line names, and the proof tells
        if not one.name.startswith("torch.optim.") or name not in (*_OF_DEVICE, "Optimizer"):
            raise StepError(file, at_step, f"the device has no `{name}`", _TAKE_ANOTHER)
    of_scaler = {one.node for one in program.facts.calls if one.is_on(Kind.SCALER) and not one.is_method("step")}
    clips = {one.call for one in program.list_sites(Role.CLIP)}
    for call in calls:
        _check_place(step, call, at_step, is_clip=call in clips)
        is_handed_over = call in clips and _hand_over_norm(step, call)
        if not is_handed_over and call not in of_scaler:
            _check_condition(step, file.get_statement(call), calls)
    step.accumulation = _find_accumulation(step, at_step)
    for node in ast.walk(step.scope):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            raise StepError(file, node, "the loop looks at gradients, which stay on the device")
    step.host = [file.get_statement(one) for one in calls]


def _check_place(step: TrainingStep, call: ast.Call, at_step: ast.Call, *, is_clip: bool) -> None:
    """Raise StepError for a call whose result is used, or which has no effect where it stands."""
    statement = step.file.get_statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        raise StepError(step.file, call, f"what `{write_node(call.func)}` returns is used")
    is_clear = _get_method(call) == "zero_grad" and step.backward.lineno < call.lineno < at_step.lineno
    if is_clear or is_clip and call.lineno > at_step.lineno:
        raise StepError(step.file, call, f"`{write_node(statement)}` stands where it has no effect on the step")


def _hand_over_norm(step: TrainingStep, call: ast.Call) -> bool:
    """Note the norm that gradients are clipped to, and tell whether a test of its own goes with it."""
    test = _find_condition(step.file, step.file.get_statement(call))
    norm = _read_norm(step.file, call)
    step.max_norm = norm if test is None else ast.IfExp(test, norm, ast.Constant(None))
    return test is not None


def _list_optimizers(program: Program, at_step: ast.Call) -> List[ProgramObject]:
    found = [one for call in program.list_facts(at_step) for one in (*call.receiver, *call.given)]
    return [one for one in found if one.kind is Kind.OPTIMIZER and one.name and not one.is_guess]


def _find_condition(file: ProgramFile, statement: ast.stmt) -> Optional[ast.expr]:
    """Find the test of an `if` that is there for one statement alone: `if args.clip > 0`."""
    above = next(file.iter_above(statement))
    if not isinstance(above, ast.If) or above.body != [statement] or above.orelse:
        return None
    is_fixed = not any(isinstance(one, (ast.Call, ast.Mod)) for one in ast.walk(above.test))
    return above.test if is_fixed else None


def _check_condition(step: TrainingStep, statement: ast.stmt, calls: Sequence[ast.Call]) -> None:
    """Raise StepError for a part of the step that is not made in each turn; either branch may make it."""
    own = [block for block, _ in step.file.list_blocks(step.file.get_statement(step.backward))]
    for above in [block[number] for block, number in step.file.list_blocks(statement)]:
        if isinstance(above, ast.If) and above.body not in own and above.orelse not in own:
            inner = [{node for one in block for node in ast.walk(one)} for block in (above.body, above.orelse)]
            if not all(nodes & {*calls} for nodes in inner):
                raise StepError(step.file, statement, f"`{write_node(statement)}` is not made in each turn")


def _read_norm(file: ProgramFile, call: ast.Call) -> ast.expr:
    norm = call.args[1] if len(call.args) > 1 else find_keyword(call, "max_norm")
    name = write_node(call.func)
    is_alone = len(call.args) + len(call.keywords) == 2
    is_plain = is_alone and "norm" in name and ".parameters()" in write_node(call)
    if norm is None or not is_plain:
        raise StepError(file, call, f"`{name}` clips as no device's optimizer does")
    return norm


def _find_accumulation(step: TrainingStep, at_step: ast.Call) -> Optional[ast.For]:
    """Find the loop of backward passes before one step: one with a number of turns, which may be 1."""
    loop = step.file.find_loop(step.backward)
    if step.file.find_loop(at_step) is loop:
        return None
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1:
        if write_node(loop.iter.func) == "range":
            return loop
    raise StepError(step.file, step.backward, "gradients of several backward passes make one step")
