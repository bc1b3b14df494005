"""Find the training step of a program, and cut it: the model's call, the loss behind it, and what the host does then.

The call may stand in a helper that the step calls, as `forward_pass` does in trainers. A step that a device's call
cannot make as the loop does is refused with the reason.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from porting.convert.bindings import Undecided
from porting.convert.names import get_root, iter_chains, iter_units, list_reads, list_writes
from porting.convert.program import Found, Program
from porting.convert.sites import Role
from porting.convert.trees import Function, ProgramFile
from porting.source.facts import Call, Kind

__all__ = ["Helper", "StepError", "TrainingStep", "find_step"]

_HOST = (Role.ZERO_GRAD, Role.BACKWARD, Role.CLIP, Role.STEP)
_TENSOR = re.compile(r"^torch\.(?!nn\.|optim)|Variable$|Tensor$|\.(to|cuda|view|float|long)$")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CALL_TRAIN = "call `model.train()` at the beginning of each epoch: a port in evaluation makes no step"
_KEEP_LOOP = "convert with `--style minimal`, which keeps the loop, or make the step by hand"


class StepError(Exception):
    """A step that is left as it is: the reason, the place, and what a person must do."""

    def __init__(self, file: ProgramFile, node: ast.AST, reason: str, remedy: str = _KEEP_LOOP) -> None:
        super().__init__(reason)
        self.left = Undecided(file.path, getattr(node, "lineno", 1), reason, remedy)


@dataclass(eq=False)
class Helper:
    """A function of the program that calls the model for the step: what it returns, and when it does."""

    file: ProgramFile
    function: Function
    unit: ast.stmt
    """The statement of the model's call, with its other branches."""
    returned: ast.Return
    elements: List[str]
    calls: List[ast.Call]
    """Its calls in the step."""
    tests: List[str]
    """What has to hold for the model's call to be this one."""


@dataclass(eq=False)
class TrainingStep:
    """A training step, as it stands in the program; expressions are those of the function that it stands in."""

    file: ProgramFile
    function: Optional[Function]
    backward: ast.stmt
    backward_call: ast.Call
    call: ast.Call
    model: ast.expr
    optimizer: ast.expr
    unit: ast.stmt
    """The statement in which the model, or the helper, is called."""
    outputs: str
    """The target of what the model returns, as source; empty where its call is a part of an expression."""
    loss: ast.expr
    host: List[ast.stmt] = field(default_factory=list)
    """What a device's call does itself, and what scalers do for it."""
    loss_units: List[ast.stmt] = field(default_factory=list)
    labels: List[str] = field(default_factory=list)
    constants: Set[str] = field(default_factory=set)
    """Names that the loss reads beside output and labels."""
    position: Optional[ast.stmt] = None
    """The statement in whose place the device is called; that of the forward call where it is None."""
    max_norm: Optional[ast.expr] = None
    helper: Optional[Helper] = None
    accumulation: Optional[ast.For] = None
    """A loop of backward passes before one step, which a port goes through once."""

    @property
    def owns_loss(self) -> bool:
        """Whether the model returns its loss itself."""
        return not self.loss_units and isinstance(self.loss, ast.Name) and self.loss.id in self.outputs.split(", ")

    @property
    def loss_name(self) -> str:
        """The name that the loop has for the loss."""
        return self.loss.id if isinstance(self.loss, ast.Name) else "loss"


def find_step(program: Program) -> TrainingStep:
    """Find the step of the only training loop of a program; raises StepError with the reason for any other."""
    backwards = [one for one in program.list_sites(Role.BACKWARD) if not _is_loose(program, one)]
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
    host = _list_host_calls(program, file, function)
    optimizer = _read_optimizer(file, first, steps, host)
    unit = _find_branch(file, in_step)
    step = TrainingStep(
        file, function, file.get_statement(first), first, forward.call, forward.call.func, optimizer, unit, "", loss
    )
    step.helper = helper
    step.outputs = _read_outputs(file, in_step)
    _check_host(program, step, host)
    step.host = [file.get_statement(one) for one in host]
    _cut_loss(step, first, in_step)
    _check_modes(program, step)
    return step


def _is_loose(program: Program, found: Found) -> bool:
    """Tell whether the walk found no way of the program to a place."""
    facts = [call for call in program.facts.calls if call.node is found.call]
    return bool(facts) and not any(call.where.programs for call in facts)


def _read_loss(program: Program, file: ProgramFile, calls: Sequence[ast.Call]) -> ast.expr:
    texts = {}
    for call in calls:
        if call.args or call.keywords:
            raise StepError(file, call, "the backward pass has arguments, as it does not end with the step")
        assert isinstance(call.func, ast.Attribute)
        loss = call.func.value
        if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute) and loss.func.attr == "scale":
            loss = loss.args[0]
        texts[ast.unparse(loss)] = loss
    blocks = [{id(block) for block, _ in file.list_blocks(file.get_statement(call))} for call in calls]
    if len(texts) > 1 or any(one <= other for n, one in enumerate(blocks) for other in blocks[n + 1 :]):
        raise StepError(file, calls[-1], "a step has several backward passes, and a device's call makes one")
    if any(list_reads(loss) & {"self"} for loss in texts.values()):
        raise StepError(file, calls[0], "the loss is an attribute, which others may read later")
    return next(iter(texts.values()))


def _find_forward(
    program: Program, file: ProgramFile, function: Optional[Function], backward: ast.Call
) -> Tuple[Found, Optional[Helper]]:
    forwards = program.list_sites(Role.FORWARD)
    own = [one for one in forwards if one.file is file and file.find_function(one.call) is function]
    loop = _find_loop(file, backward)
    own = [one for one in own if loop is None or any(above is loop for above in file.iter_above(one.call))]
    own = [one for one in own if one.call.lineno <= backward.lineno]  # what is called behind it evaluates
    if own:
        if len({ast.unparse(one.call) for one in own}) > 1 or not _are_exclusive(file, [one.call for one in own]):
            raise StepError(file, own[1].call, "the model is called several times in a step")
        return own[0], None
    for found in forwards:
        helper = found.file.find_function(found.call)
        calls = [] if helper is None else [call for _, call in program.iter_callers(found.file, helper)]
        inside = [call for call in calls if file.find_function(call) is function and _stands_in(file, call)]
        if helper is not None and inside:
            return _read_helper(program, file, forwards, helper, found.file, inside)
    raise StepError(file, backward, "no call of a model was found whose loss this is")


def _stands_in(file: ProgramFile, node: ast.AST) -> bool:
    return any(above is file.tree for above in file.iter_above(node))


def _are_exclusive(file: ProgramFile, calls: Sequence[ast.Call]) -> bool:
    units = {id(_find_branch(file, call)) for call in calls}
    return len(calls) == 1 or len(units) == 1


def _find_branch(file: ProgramFile, call: ast.AST) -> ast.stmt:
    """Find the statement of a call, or the `if` of which each branch is such a call."""
    statement = file.get_statement(call)
    for above in file.iter_above(statement):
        if isinstance(above, ast.With) and len(above.body) == 1:
            continue
        if not (isinstance(above, ast.If) and above.orelse and len(above.body) == len(above.orelse) == 1):
            break
        leaves = [list(iter_units(block)) for block in (above.body, above.orelse)]
        texts = {tuple(sorted(list_writes(one) - {""})) for block in leaves for one in block}
        if len(texts) != 1:
            break
        statement = above
    return statement


def _find_loop(file: ProgramFile, node: ast.AST) -> Optional[ast.AST]:
    function = file.find_function(node)
    for above in file.iter_above(node):
        if above is function:
            return None
        if isinstance(above, _LOOPS):
            return above
    return None


def _read_helper(
    program: Program,
    file: ProgramFile,
    forwards: Sequence[Found],
    function: Function,
    owner: ProgramFile,
    calls: List[ast.Call],
) -> Tuple[Found, Helper]:
    if len({ast.unparse(call) for call in calls}) > 1 or not _are_exclusive(file, calls):
        raise StepError(file, calls[-1], f"`{function.name}` is called several times in a step")
    inside = [one for one in forwards if one.file is owner and owner.find_function(one.call) is function]
    missing = _list_missing(function, calls[0])
    taken = [one for one in inside if get_root(one.call.func) not in missing]
    if len(taken) != 1:
        raise StepError(owner, function, f"`{function.name}` calls the model in several places")
    call = taken[0].call
    parameters = {one.arg for one in function.args.args} - {"self"}
    if get_root(call.func) in parameters:
        raise StepError(owner, call, f"the model is a parameter of `{function.name}`")
    returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    last = function.body[-1]
    if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
        raise StepError(owner, function, f"`{function.name}` does not end with its only `return`")
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    unit = _find_branch(owner, call)
    tests = _list_tests(owner, call)
    return taken[0], Helper(owner, function, unit, last, [ast.unparse(one) for one in parts], calls, tests)


def _list_missing(function: Function, call: ast.Call) -> Set[str]:
    """List the parameters for which a call gives nothing."""
    names = [one.arg for one in function.args.args]
    names = names[1:] if names[:1] == ["self"] else names
    given = {one.arg for one in call.keywords}
    return {name for name in names[len(call.args) :] if name not in given}


def _list_tests(file: ProgramFile, node: ast.AST) -> List[str]:
    """List the tests of the `if`s around a node in its function that have to hold."""
    tests = []
    inner: ast.AST = node
    for above in file.iter_above(node):
        if isinstance(above, ast.FunctionDef):
            break
        if isinstance(above, ast.If) and inner is not above.test:
            text = ast.unparse(above.test)
            tests.append(text if any(inner is one for one in above.body) else f"not ({text})")
        inner = above
    return tests


def _read_outputs(file: ProgramFile, call: ast.Call) -> str:
    """Return the names that a call's result gets; empty where the call is a part of an expression."""
    statement = file.get_statement(call)
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        if all(isinstance(one, ast.Name) for one in parts):
            return ", ".join(ast.unparse(one) for one in parts)
        raise StepError(file, statement, f"the output is kept as `{ast.unparse(target)}`, which others may read later")
    if isinstance(statement, (ast.Assign, ast.Expr, ast.AnnAssign)):
        return ""
    raise StepError(file, statement, "the model's call stands where no other can take its place")


def _list_host_calls(program: Program, file: ProgramFile, function: Optional[Function]) -> List[ast.Call]:
    """List the calls that a device's call makes itself, and those on a `GradScaler`, of one function."""
    found = [one.call for one in program.sites if one.site.role in _HOST and one.file is file]
    found += [call.node for call in program.facts.calls if call.is_on(Kind.SCALER) and not call.is_method("scale")]
    found += [call.node for call in program.facts.list_methods("zero_grad")]
    unique = {id(one): one for one in found if _stands_in(file, one)}
    return [one for one in unique.values() if file.find_function(one) is function]


def _read_optimizer(
    file: ProgramFile, backward: ast.Call, steps: Sequence[Found], host: Sequence[ast.Call]
) -> ast.expr:
    found: Dict[str, ast.expr] = {}
    for call in host:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if any(one.call is call for one in steps):
            if call.args or call.keywords:
                raise StepError(file, call, "the optimizer calls a closure in its step")
            assert isinstance(call.func, ast.Attribute)
            found[ast.unparse(call.func.value)] = call.func.value
        elif method == "step" and call.args:  # a scaler's
            found[ast.unparse(call.args[0])] = call.args[0]
    if len(found) > 1:
        raise StepError(file, backward, f"{len(found)} optimizers make their steps in the loop")
    if not found:
        raise StepError(file, backward, "the optimizer's step does not stand in the function of the backward pass")
    return next(iter(found.values()))


def _check_host(program: Program, step: TrainingStep, host: Sequence[ast.Call]) -> None:
    """Raise StepError for what a device's call would do otherwise than the loop."""
    file = step.file
    names = {call.func.attr for call in host if isinstance(call.func, ast.Attribute)}
    scalers = [one for one in program.facts.calls if one.is_on(Kind.SCALER) and not one.is_method("step")]
    if "zero_grad" not in names:
        raise StepError(file, step.backward, "nothing clears the gradients, which are added up from step to step")
    for call in host:
        statement = file.get_statement(call)
        if not isinstance(statement, ast.Expr) or statement.value is not call:
            raise StepError(file, call, f"what `{ast.unparse(call.func)}` returns is used")
        if not any(one.node is call for one in scalers):
            is_clip = any(one.call is call for one in program.list_sites(Role.CLIP))
            test = _find_condition(file, statement) if is_clip else None
            if is_clip:
                norm = _read_norm(file, call)
                step.max_norm = norm if test is None else ast.IfExp(test, norm, ast.Constant(None))
            if test is None:
                _check_condition(step, statement, host)
    loop = _find_loop(file, step.backward)
    at_step = next(one for one in host if isinstance(one.func, ast.Attribute) and one.func.attr == "step")
    if _find_loop(file, at_step) is not loop:
        if not isinstance(loop, ast.For) or "range" not in ast.unparse(loop.iter):
            raise StepError(file, step.backward, "gradients of several backward passes make one step")
        step.accumulation = loop
    scope = step.function or file.tree
    reads = [one for one in ast.walk(scope) if isinstance(one, ast.Attribute) and one.attr in ("grad", "autograd")]
    for one in reads:
        if one.attr == "grad" or "grad(" in ast.unparse(file.get_statement(one)):
            raise StepError(file, one, "the loop looks at gradients, which stay on the device")


def _find_condition(file: ProgramFile, statement: ast.stmt) -> Optional[ast.expr]:
    """Find the test of an `if` that is there for one statement alone: `if args.clip > 0`."""
    above = next(file.iter_above(statement))
    is_alone = isinstance(above, ast.If) and above.body == [statement] and not above.orelse
    is_fixed = is_alone and not any(isinstance(one, (ast.Call, ast.Mod)) for one in ast.walk(above.test))  # type: ignore[attr-defined]
    return above.test if is_fixed and isinstance(above, ast.If) else None


def _check_condition(step: TrainingStep, statement: ast.stmt, host: Sequence[ast.Call]) -> None:
    """Raise StepError for a part of the step that is not made in each turn; either branch may make it."""
    own = {id(block) for block, _ in step.file.list_blocks(step.backward)}
    for above in step.file.iter_above(statement):
        if above is step.function:
            return
        blocks = [getattr(above, name, None) for name in ("body", "orelse")]
        if isinstance(above, ast.If) and not own & {id(block) for block in blocks}:
            made = [any(one in list(ast.walk(ast.Module(block, []))) for one in host) for block in blocks if block]
            if made != [True, True]:
                raise StepError(step.file, statement, f"`{ast.unparse(statement)}` is not made in each turn")


def _read_norm(file: ProgramFile, call: ast.Call) -> ast.expr:
    given = {one.arg: one.value for one in call.keywords}
    norm = call.args[1] if len(call.args) > 1 else given.pop("max_norm", None)
    name = ast.unparse(call.func)
    if norm is None or given or len(call.args) > 2 or "norm" not in name or ".parameters()" not in ast.unparse(call):
        raise StepError(file, call, f"`{name}` clips as no device's optimizer does")
    return norm


def _cut_loss(step: TrainingStep, backward: ast.Call, forward: ast.Call) -> None:
    """Divide what stands between forward and backward pass: the loss's statements, its labels, and all else."""
    file = step.file
    units = _list_between(step, backward)
    outputs = {"__output__"}
    if step.outputs:
        names = step.outputs.split(", ")
        helper = step.helper
        made = _read_outputs(helper.file, step.call).split(", ") if helper else []
        outputs = {name for n, name in enumerate(names) if not helper or helper.elements[n : n + 1] == made}
        outputs = outputs or set(names if helper is None else ())
        if helper is not None and (len(names) != len(helper.elements) or len(outputs) != 1):
            raise StepError(file, forward, f"`{helper.function.name}` returns something else than the model's output")
    elif step.helper:
        raise StepError(file, forward, f"what `{step.helper.function.name}` returns has no name")
    tainted = set(outputs)
    of_output: Set[int] = set()
    for unit in units:
        if unit is step.unit and step.outputs:
            continue
        if unit is step.unit or list_reads(unit) & tainted:
            of_output.add(id(unit))
            tainted |= list_writes(unit)
    needed = list_reads(step.loss)
    chosen: List[ast.stmt] = []
    for unit in reversed(units):
        writes = list_writes(unit)
        if writes & needed and not (unit is step.unit and step.outputs):
            if id(unit) in of_output or _is_host_value(unit):
                chosen.insert(0, unit)
                needed |= list_reads(unit)
    step.loss_units = chosen
    own = {name for unit in chosen for name in list_writes(unit)}
    free = needed - outputs - own
    free |= {get_root(one.target) for one in chosen if isinstance(one, ast.AugAssign)} & (free - own)
    varying = {name for name in free if _varies(step, name, backward)}
    step.constants = free - varying
    if not varying:  # the whole of the data in each step
        varying = {name for name in step.constants if _is_tensor(step, name)}
        step.constants -= varying
    step.labels = _list_labels(step, varying)
    step.position = _find_position(step, units, of_output, varying)
    step.outputs = step.outputs if step.helper is None else next(iter(outputs))


def _list_between(step: TrainingStep, backward: ast.Call) -> List[ast.stmt]:
    """List the statements from the forward to the backward pass, in the block that has both."""
    file = step.file
    around = file.list_blocks(step.backward)
    for block, number in reversed(around):
        units = list(iter_units(block[: number + 1]))
        place = next((n for n, one in enumerate(units) if one is step.unit), None)
        if place is not None:
            end = next((n for n, one in enumerate(units) if any(inner is backward for inner in ast.walk(one))), None)
            if end is None:
                break
            last = [] if step.unit is not units[end] else [units[end]]
            return [*units[place:end], *last]
    raise StepError(file, step.backward, "forward and backward pass do not follow each other in one block")


def _is_host_value(unit: ast.stmt) -> bool:
    """Tell whether a statement takes numbers of a tensor's shape, which a loss may do as well."""
    text = ast.unparse(unit)
    return isinstance(unit, ast.Assign) and any(word in text for word in (".size(", ".shape", "len("))


def _varies(step: TrainingStep, name: str, backward: ast.AST) -> bool:
    """Tell whether a name holds something else in each step."""
    file = step.file
    if step.function is not None and name in {one.arg for one in step.function.args.args} - {"self"}:
        return _find_loop(file, backward) is None
    scope = step.function or file.tree
    loops = [one for one in file.iter_above(backward) if isinstance(one, _LOOPS)]
    for one in file.iter_assignments(name, scope):
        inside = [one, *file.iter_above(one)]
        if any(any(loop is above for above in inside) for loop in loops) or (not loops and step.function is not None):
            return True
    return False


def _is_tensor(step: TrainingStep, name: str) -> bool:
    """Tell whether a name that stays the same is given a tensor, by how it is assigned."""
    scopes = [step.file.tree] if step.function is None else [step.function, step.file.tree]
    values = [getattr(one, "value", None) for scope in scopes for one in step.file.iter_assignments(name, scope)]
    names = [ast.unparse(one.func) for one in values if isinstance(one, ast.Call)]
    is_used = (
        any(isinstance(one, ast.Call) and get_root(one.func) == name for one in ast.walk(step.loss_units[-1]))
        if step.loss_units
        else False
    )
    return not is_used and any(_TENSOR.search(one) for one in names)


def _list_labels(step: TrainingStep, varying: Set[str]) -> List[str]:
    """List what the loss reads of the batch; raises StepError for values of the host."""
    body = [*step.loss_units, ast.Expr(step.loss)]
    chains = list(iter_chains(ast.Module(body, []), varying))
    texts = list(dict.fromkeys(ast.unparse(one) for one in chains))
    texts = [one for one in texts if not any(one.startswith((f"{other}.", f"{other}[")) for other in texts)]
    scope = step.function or step.file.tree
    for name in sorted(varying):
        for one in step.file.iter_assignments(name, scope):
            if _is_number(one, name):
                raise StepError(step.file, one, f"the loss reads `{name}`, a number that changes from step to step")
    return texts


def _is_number(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.For):
        text = ast.unparse(statement.iter)
        target = statement.target
        is_index = text.startswith("enumerate(") and isinstance(target, ast.Tuple) and get_root(target.elts[0]) == name
        return text.startswith("range(") or is_index
    value = getattr(statement, "value", None)
    return (
        isinstance(value, (ast.Constant, ast.BinOp))
        and not any(isinstance(one, ast.Call) for one in ast.walk(value))
        or isinstance(value, ast.Call)
        and ast.unparse(value.func).rpartition(".")[2] in ("item", "len", "float", "int")
    )


def _find_position(
    step: TrainingStep, units: Sequence[ast.stmt], of_output: Set[int], varying: Set[str]
) -> Optional[ast.stmt]:
    """Find where the device is called: behind what makes the labels; None for the place of the forward call."""
    made = [n for n, unit in enumerate(units) if n and list_writes(unit) & varying and unit not in step.loss_units]
    if not made or step.helper is not None:
        return None
    behind = [(n, unit) for n, unit in enumerate(units) if n > made[-1] and unit in step.loss_units]
    early = [unit for unit in units[1 : made[-1] + 1] if id(unit) in of_output]
    if early or not behind:
        raise StepError(step.file, units[made[-1]], "labels are made behind what reads the output")
    return behind[0][1]


def _check_modes(program: Program, step: TrainingStep) -> None:
    """Raise StepError for a loop that trains in the mode in which an evaluation has left the model."""
    calls = [one for one in program.facts.list_methods("eval", "train") if one.is_on(Kind.MODULE, Kind.PORT)]
    around = {id(loop.node) for loop in _get_fact(program, step.backward_call).where.loops}
    if not any(one.is_method("eval") and around & {id(loop.node) for loop in one.where.loops} for one in calls):
        return
    functions = [step.function, *_iter_callers(program, step.file, step.function, 4)]
    trains = [one for one in calls if one.is_method("train") and _owns(program, functions, one)]
    if not trains:
        raise StepError(
            step.file, step.backward, "the loop calls `eval()`, and no `train()` before the step", _CALL_TRAIN
        )


def _get_fact(program: Program, call: ast.Call) -> Call:
    return next(one for one in program.facts.calls if one.node is call)


def _owns(program: Program, functions: Sequence[Optional[Function]], call: Call) -> bool:
    file = program.find_file(call.where.file)
    return file is not None and any(file.find_function(call.node) is one for one in functions)


def _iter_callers(
    program: Program, file: ProgramFile, function: Optional[Function], depth: int
) -> Iterator[Optional[Function]]:
    if function is not None and depth:
        for caller, call in program.iter_callers(file, function):
            above = caller.find_function(call)
            yield above
            yield from _iter_callers(program, caller, above, depth - 1)
