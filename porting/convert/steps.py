"""Find the training step of a program, and cut it: the model's call, the loss behind it, and what the host does then.

The call may stand in a helper that the step calls, as `forward_pass` does in trainers. A step that a device's call
cannot make as the loop does is refused with the reason.
"""

from __future__ import annotations

import ast
from typing import Iterator, List, Optional, Sequence, Tuple

from porting.convert.host_calls import check_host_calls, list_host_calls, read_optimizer
from porting.convert.loss_cut import cut_loss
from porting.convert.names import collect_reads, collect_writes, get_root, iter_units
from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.training_step import Helper, StepError, TrainingStep
from porting.convert.trees import LOOPS, Function, ProgramFile, find_argument, list_parameters, write_node
from porting.source.facts import Call, Kind

__all__ = ["find_step"]

_CALL_TRAIN = "call `model.train()` at the beginning of each epoch: a port in evaluation makes no step"


def find_step(program: Program) -> TrainingStep:
    """Find the step of the only training loop of a program; raises StepError with the reason for any other."""
    # what the walk has found no way to is not reached
    calls = [(one, program.list_facts(one.call)) for one in program.list_sites(Role.BACKWARD)]
    backwards = [one for one, facts in calls if not facts or any(fact.where.programs for fact in facts)]
    if not backwards:
        raise StepError(program.main, program.main.tree, "no backward pass was found", "name the script that trains")
    file, first = backwards[0].file, backwards[0].call
    function = file.find_function(first)
    for one in backwards[1:]:
        if one.file is not file or one.file.find_function(one.call) is not function:
            raise StepError(one.file, one.call, "the program has several training loops")
    loss = _read_loss(program, file, [one.call for one in backwards])
    forward, helper = _find_forward(program, file, function, first)
    in_step = helper.calls[0] if helper else forward.call
    steps = [one for one in program.list_sites(Role.STEP) if one.file is file]
    host = list_host_calls(program, file, function)
    optimizer = read_optimizer(file, first, steps, host)
    unit = _find_branch(file, in_step)
    step = TrainingStep(file, function, first, forward.call, optimizer, unit, loss, helper=helper)
    names = [one.name for one in program.facts.calls if one.node is forward.call]
    if any(name[:1] == "." and name != ".forward" for name in names):
        remedy = f"let `forward` do what `{names[0][1:]}` does, and call the model"
        raise StepError(step.file, step.call, f"the model is trained by its method `{names[0][1:]}`", remedy)
    if step.model == "self" or not isinstance(forward.call.func, (ast.Name, ast.Attribute)):
        raise StepError(step.file, step.call, f"the model is called as `{step.model}`, which has no name to port")
    check_host_calls(program, step, host)
    cut_loss(program, step, in_step)
    _check_modes(program, step)
    _check_frozen(step)
    return step


def _read_loss(program: Program, file: ProgramFile, calls: Sequence[ast.Call]) -> ast.expr:
    texts = {}
    for call in calls:
        if call.args or call.keywords:
            raise StepError(file, call, "`backward` is called with arguments: its graph is used again behind the step")
        assert isinstance(call.func, ast.Attribute)
        loss = call.func.value
        if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute) and loss.func.attr == "scale":
            loss = loss.args[0]
        texts[write_node(loss)] = loss
    blocks = [{id(block) for block, _ in file.list_blocks(file.get_statement(call))} for call in calls]
    if len(texts) > 1 or any(one <= other for n, one in enumerate(blocks) for other in blocks[n + 1 :]):
        raise StepError(file, calls[-1], "a step has several backward passes, and a device's call makes one")
    if any(collect_reads(loss) & {"self"} for loss in texts.values()):
        raise StepError(file, calls[0], "the loss is an attribute, which others may read later")
    return next(iter(texts.values()))


def _find_forward(
    program: Program, file: ProgramFile, function: Optional[Function], backward: ast.Call
) -> Tuple[Found, Optional[Helper]]:
    forwards = program.list_sites(Role.FORWARD)
    own = [one for one in forwards if one.file is file and file.find_function(one.call) is function]
    loop = file.find_loop(backward)
    own = [one for one in own if loop is None or loop in file.iter_above(one.call)]
    own = [one for one in own if one.call.lineno <= backward.lineno]  # what is called behind it evaluates
    if own:
        if _are_several(file, [one.call for one in own]):
            raise StepError(file, own[1].call, "the model is called several times in a step")
        return own[0], None
    for found in forwards:
        helper = found.file.find_function(found.call)
        calls = [] if helper is None else [call for _, call in program.iter_callers(found.file, helper)]
        inside = [call for call in calls if file.find_function(call) is function and file.holds(call)]
        if helper is not None and inside:
            return _read_helper(program, file, forwards, helper, found.file, inside)
    raise StepError(file, backward, "no call of a model was found whose loss this is")


def _are_several(file: ProgramFile, calls: Sequence[ast.Call]) -> bool:
    """Tell whether calls differ, or are not those of the branches of one `if`."""
    return len({write_node(call) for call in calls}) > 1 or len({_find_branch(file, call) for call in calls}) > 1


def _find_branch(file: ProgramFile, call: ast.AST) -> ast.stmt:
    """Find the statement of a call, or the `if` of which each branch is such a call."""
    statement = file.get_statement(call)
    for above in file.iter_above(statement):
        if isinstance(above, ast.With) and len(above.body) == 1:
            continue
        if not (isinstance(above, ast.If) and above.orelse and len(above.body) == len(above.orelse) == 1):
            break
        leaves = [list(iter_units(block)) for block in (above.body, above.orelse)]
        if len({frozenset(collect_writes(one)) for block in leaves for one in block}) != 1:
            break
        statement = above
    return statement


def _read_helper(
    program: Program,
    file: ProgramFile,
    forwards: Sequence[Found],
    function: Function,
    owner: ProgramFile,
    calls: List[ast.Call],
) -> Tuple[Found, Helper]:
    if _are_several(file, calls):
        raise StepError(file, calls[-1], f"`{function.name}` is called several times in a step")
    inside = [one for one in forwards if one.file is owner and owner.find_function(one.call) is function]
    parameters = {*list_parameters(function)} - {"self"}
    missing = {name for name in parameters if find_argument(function, calls[0], name) is None}
    taken = [one for one in inside if get_root(one.call.func) not in missing]
    if len(taken) != 1:
        raise StepError(owner, function, f"`{function.name}` calls the model in several places")
    call = taken[0].call
    if get_root(call.func) in parameters:
        raise StepError(owner, call, f"the model is a parameter of `{function.name}`")
    returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    last = function.body[-1]
    if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
        raise StepError(owner, function, f"`{function.name}` does not end with its only `return`")
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    elements, tests = [write_node(one) for one in parts], _list_tests(owner, call)
    return taken[0], Helper(owner, function, _find_branch(owner, call), last, elements, calls, tests)


def _list_tests(file: ProgramFile, node: ast.AST) -> List[str]:
    """List the tests of the `if`s around a node in its function that have to hold."""
    around = [block[number] for block, number in file.list_blocks(file.get_statement(node))]
    pairs = [(one, inner) for one, inner in zip(around, around[1:]) if isinstance(one, ast.If)]
    texts = [(write_node(one.test), inner in one.body) for one, inner in pairs]
    return [text if is_first else f"not ({text})" for text, is_first in reversed(texts)]


def _check_modes(program: Program, step: TrainingStep) -> None:
    """Raise StepError for a loop that trains in the mode in which an evaluation has left the model."""
    calls = [one for one in program.facts.list_methods("eval", "train") if one.is_on(Kind.MODULE, Kind.PORT)]
    loops = {loop.node for fact in program.list_facts(step.backward)[:1] for loop in fact.where.loops}
    evaluates = [one for one in calls if one.is_method("eval") and loops & {loop.node for loop in one.where.loops}]
    if all(any(_ends(one, other) for other in calls) for one in evaluates):
        return
    functions = [step.function, *_iter_callers(program, step.file, step.function, 4)]
    trains = [(program.find_file(one.where.file), one.node) for one in calls if one.is_method("train")]
    if not any(file is not None and file.find_function(node) in functions for file, node in trains):
        reason = "the loop calls `eval()`, and no `train()` before the step"
        raise StepError(step.file, step.backward, reason, _CALL_TRAIN)


def _ends(evaluation: Call, other: Call) -> bool:
    """Tell whether a function that has begun an evaluation lets the model train again."""
    is_behind = other.place.line > evaluation.place.line
    return other.is_method("train") and other.where.body is evaluation.where.body is not None and is_behind


def _check_frozen(step: TrainingStep) -> None:
    """Raise StepError for a loop that begins or ends the training of some weights."""
    for loop in (one for one in step.file.iter_above(step.backward) if isinstance(one, LOOPS)):
        for node in (one for one in ast.walk(loop) if isinstance(one, ast.Attribute)):
            if node.attr == "requires_grad_" or node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
                raise StepError(step.file, node, "which weights are trained changes in the loop")


def _iter_callers(
    program: Program, file: ProgramFile, function: Optional[Function], depth: int
) -> Iterator[Optional[Function]]:
    for caller, call in program.iter_callers(file, function) if function is not None and depth else ():
        above = caller.find_function(call)
        yield above
        yield from _iter_callers(program, caller, above, depth - 1)
