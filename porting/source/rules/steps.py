"""The step of a training loop: loss, backward pass and what stands around them, all of which a port has inside."""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Optional, Set, Union

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, ProgramObject, Statement
from porting.source.files import list_blocks, list_nodes, list_statements
from porting.source.library import TENSOR_KINDS
from porting.source.rules.names import is_in_place, name_last, write_dotted
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, collect_lines, rule
from porting.source.rules.weights import drops_gradient, is_of_loop, is_weight, iter_changed

__all__ = [
    "iter_autocast",
    "iter_backward",
    "iter_changed_weights",
    "iter_clipping",
    "iter_gradients_in_forward",
    "iter_gradients_in_loop",
    "iter_gradients_of_gradients",
    "iter_gradients_read",
    "iter_kept_graphs",
    "iter_loss_outside_forward",
    "iter_loss_scaling",
    "iter_optimizer_steps",
    "iter_switched_synchronisation",
    "iter_synchronisation",
    "iter_updates",
    "iter_updates_by_hand",
    "iter_zero_grad",
]


@rule(of_steps=True)
def iter_backward(reading: Reading) -> Iterator[Finding]:
    """L010: the backward pass is called on the host."""
    for call in reading.backward_calls:
        yield reading.report("L010", call.place)


@rule(of_steps=True)
def iter_kept_graphs(reading: Reading) -> Iterator[Finding]:
    """L012: a graph is kept for a second backward pass."""
    for call in reading.backward_calls:
        if any(_is_true(word, "retain_graph") for word in call.node.keywords):
            yield reading.report("L012", call.place)


def _is_true(word: ast.keyword, name: str) -> bool:
    return word.arg == name and isinstance(word.value, ast.Constant) and bool(word.value.value)


def _list_gradients(reading: Reading, *, in_forward: bool) -> List[Call]:
    calls = [call for call in reading.facts.calls if call.name == "torch.autograd.grad"]
    return [call for call in calls if call.where.in_forward is in_forward]


@rule(of_steps=True)
def iter_gradients_in_loop(reading: Reading) -> Iterator[Finding]:
    """L011: a loop asks autograd for gradients."""
    for call in _list_gradients(reading, in_forward=False):
        yield reading.report("L011", call.place)


def iter_gradients_in_forward(reading: Reading) -> Iterator[Finding]:
    """C007: `forward` asks autograd for gradients."""
    for call in _list_gradients(reading, in_forward=True):
        yield reading.report("C007", call.place)


def iter_gradients_of_gradients(reading: Reading) -> Iterator[Finding]:
    """L015: a loop on the host differentiates a port's gradients again."""
    for call in _list_gradients(reading, in_forward=False):
        objects = (one for argument in call.arguments for one in argument)
        is_again = any(_is_true(word, "create_graph") for word in call.node.keywords)
        if is_again and reading.is_made_of(objects, reading.host_ports):
            yield reading.report("L015", call.place)


@rule(of_steps=True)
def iter_optimizer_steps(reading: Reading) -> Iterator[Finding]:
    """O007, or O004 with a closure: an optimizer's step on the host."""
    for call in reading.facts.list_methods("step"):
        if _is_optimizer_step(call):
            is_remote = any(one.name.startswith("torch.distributed.") for one in call.receiver)
            has_closure = bool(call.node.args) and call.is_on(Kind.OPTIMIZER) and not call.is_on(Kind.SCALER)
            has_closure = has_closure and not is_remote
            yield reading.report("O004" if has_closure else "O007", call.place)


_OPTIMIZER_NAME = re.compile(r"(^|_)opt(im\w*)?($|_)|optim", re.IGNORECASE)


def _is_optimizer_step(call: Call) -> bool:
    if call.where.in_forward:
        return False
    if call.receiver:
        return call.is_on(Kind.OPTIMIZER, Kind.SCALER)
    owner = name_last(write_dotted(call.node.func).rpartition(".")[0])
    return bool(_OPTIMIZER_NAME.search(owner)) and "sched" not in owner.lower()


@rule(of_steps=True)
def iter_zero_grad(reading: Reading) -> Iterator[Finding]:
    """O008: gradients are set to zero on the host."""
    for statement in reading.facts.statements:
        if drops_gradient(statement.node) and not statement.where.in_forward and not reading.is_ported:
            yield reading.report("O008", statement.place)
    for call in reading.facts.list_methods("zero_grad", "zero_"):
        if call.is_method("zero_grad") or write_dotted(call.node.func).endswith(".grad.zero_"):
            yield reading.report("O008", call.place)


@rule(in_host_loops=False)
def iter_gradients_read(reading: Reading) -> Iterator[Finding]:
    """D009: the loop reads or writes the gradients of weights."""
    if not reading.backward_calls and not reading.is_ported and not reading.has_trainer:
        return
    told = collect_lines((*UPDATES, iter_zero_grad), reading)
    for call in reading.facts.list_methods("register_hook", "register_post_accumulate_grad_hook"):
        if any(map(is_weight, call.receiver)):
            yield reading.report("D009", call.place)
    for read in reading.facts.reads:
        if read.asks == "grad" and is_of_loop(read.where):
            if (read.place.file, read.place.line) not in told:
                yield reading.report("D009", read.place)


_CLIPPING = {"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "dispatch_clip_grad"}


@rule(of_steps=True)
def iter_clipping(reading: Reading) -> Iterator[Finding]:
    """O009: gradients are clipped on the host."""
    for call in reading.facts.calls:
        if name_last(call.name) in _CLIPPING or call.is_method("clip_gradients"):
            yield reading.report("O009", call.place)


@rule(in_host_loops=False)
def iter_loss_scaling(reading: Reading) -> Iterator[Finding]:
    """O010: a `GradScaler` is made, or does what belongs to no other line."""
    for call in reading.facts.calls:
        makes = any(one.kind is Kind.SCALER and one.call is call for one in call.result)
        makes = makes or call.name in ("timm.utils.NativeScaler", "timm.utils.ApexScaler") and not call.receiver
        if makes or call.is_method("update", "unscale_") and call.is_on(Kind.SCALER):
            yield reading.report("O010", call.place)


_AUTOCAST = re.compile(r"torch(\.\w+)*\.autocast|(accelerate|lightning).*")


@rule(in_host_loops=False)
def iter_autocast(reading: Reading) -> Iterator[Finding]:
    """P013: autocast chooses the precision."""
    for call in reading.facts.calls:
        names = [name for name in (call.name, *call.other_names) if name.endswith("autocast")]
        names += [one.name for one in call.receiver] if call.is_method("autocast") else []
        switches = [word.value for word in call.node.keywords if word.arg == "enabled"] if names else []
        is_off = any(isinstance(value, ast.Constant) and not value.value for value in switches)
        if not is_off and any(_AUTOCAST.fullmatch(name) for name in names):
            yield reading.report("P013", call.place)


@rule(of_steps=True)
def iter_synchronisation(reading: Reading) -> Iterator[Finding]:
    """O016: the loop says when gradients are synchronised."""
    for call in reading.facts.list_methods("no_sync"):
        yield reading.report("O016", call.place)


# on a port of a loop on the host it says nothing
@rule(in_host_loops=False)
def iter_switched_synchronisation(reading: Reading) -> Iterator[Finding]:
    """O016: an attribute says when gradients are synchronised."""
    for statement in reading.facts.statements:
        targets = statement.node.targets if isinstance(statement.node, ast.Assign) else []
        if any(write_dotted(target).endswith("require_backward_grad_sync") for target in targets):
            yield reading.report("O016", statement.place)


@rule(in_host_loops=False)
def iter_changed_weights(reading: Reading) -> Iterator[Finding]:
    """O015: weights are changed in each step without an optimizer."""
    for place, where in iter_changed(reading):
        if is_of_loop(where) and reading.find_batch_loop(where) is not None:
            yield reading.report("O015", place)


@rule(of_steps=True)
def iter_updates(reading: Reading) -> Iterator[Finding]:
    """O015: a call changes a weight by its gradient."""
    for call in reading.facts.calls:
        if is_in_place(call) and is_of_loop(call.where) and _reads_gradient(call.node.args):
            if _owner_of(call.node) != "grad":
                yield reading.report("O015", call.place)


@rule(Programs.PLAIN)
def iter_updates_by_hand(reading: Reading) -> Iterator[Finding]:
    """O015: a statement changes a weight by its gradient."""
    for file in reading.files:
        if any(".grad" in line for line in reading.read_lines(file)):
            for node in _iter_updates(reading.parse(file)):
                yield reading.report("O015", Place(file, node.lineno, node.col_offset + 1))


UPDATES = (iter_changed_weights, iter_updates, iter_updates_by_hand)
"""The rules of O015."""


def _owner_of(node: ast.Call) -> str:
    return name_last(write_dotted(node.func).rpartition(".")[0])


def _reads_gradient(nodes: List[ast.expr]) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "grad" for node in nodes for part in list_nodes(node))


def _iter_updates(tree: Optional[ast.AST], function: str = "") -> Iterator[ast.stmt]:
    """List the statements that change weights by their gradients, not those of an optimizer of the program's own."""
    for node in list_blocks(tree) if tree is not None else ():
        name = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, (ast.Assign, ast.AugAssign)) and name != "step" and _updates_weight(node):
            yield node
        yield from _iter_updates(node, name)


def _updates_weight(node: Union[ast.Assign, ast.AugAssign]) -> bool:
    if isinstance(node, ast.AugAssign):
        target = name_last(write_dotted(node.target))
        return _reads_gradient([node.value]) and target != "grad" and (target == "data" or isinstance(node.op, ast.Sub))
    target = write_dotted(node.targets[0])
    return target.endswith(".data") and _reads_gradient([node.value])


_REMEDY_OF_SEVERAL = (
    "hand over one function of output and label that adds up all parts: `to_ipu(model, loss, optimizer=optimizer)`; "
    "a part that needs an input gets it as one more label"
)


def iter_loss_outside_forward(reading: Reading) -> Iterator[Finding]:
    """L001: the loss that is differentiated is computed behind the call of the model."""
    seen: Set[Place] = set()
    for backward in filter(reading.concerns_port, reading.backward_calls):
        places = [*_locate_loss(reading, backward)]
        remedy = _REMEDY_OF_SEVERAL if len(places) > 1 else ""
        for place in places:
            if place not in seen:
                seen.add(place)
                yield reading.report("L001", place, label="a static graph only sees what `forward` does", remedy=remedy)


def _locate_loss(reading: Reading, backward: Call) -> Iterator[Place]:
    arguments = [one for argument in backward.arguments for one in argument]
    objects = [one for one in (*backward.receiver, *arguments) if one.kind in TENSOR_KINDS]
    found: Dict[Place, Call] = {}
    for program_object in objects:
        for part in _go_through_losses(program_object):
            call = part.call
            if call is not None and not call.where.in_forward and not _is_elsewhere(reading, call):
                found.setdefault(call.place, call)
    if found:
        yield from found
        return
    if objects and all(map(_comes_of_model, objects)):
        return
    if any(one.kind is Kind.LOSS for one in objects) or not objects:
        place = _find_assignment(reading, backward)
        if place is not None:
            yield place


def _go_through_losses(
    program_object: ProgramObject, seen: Optional[Set[ProgramObject]] = None
) -> Iterator[ProgramObject]:
    """Go through the losses that a loss was added up of, not into what they were computed of."""
    seen = set() if seen is None else seen
    if program_object in seen or program_object.kind is not Kind.LOSS:
        return
    seen.add(program_object)
    if program_object.call is not None and _is_criterion(program_object):
        yield program_object
        return
    for part in program_object.parts:
        yield from _go_through_losses(part, seen)


def _is_criterion(program_object: ProgramObject) -> bool:
    """Tell whether a loss comes of a loss function or module, and not of arithmetic or a model that has it inside."""
    if any(part.kind in (Kind.MODULE, Kind.PORT) for part in program_object.parts):
        return False
    return any(part.kind is Kind.CRITERION for part in program_object.parts) or bool(
        _LOSS_NAME.search(name_last(program_object.name))
    )


_LOSS_NAME = re.compile(r"loss|criterion|cross_entropy|kl_div|objective|elbo|(^|_)(nll|bce|mse)($|_)", re.IGNORECASE)


def _is_elsewhere(reading: Reading, fact: Union[Call, Statement]) -> bool:
    return reading.is_ported and reading.is_excluded(fact.where)


def _find_assignment(reading: Reading, backward: Call) -> Optional[Place]:
    """Find the statement that computed what is differentiated, where no loss function did."""
    name = _name_differentiated(backward)
    if not name and not reading.is_ported:
        # it has no name: `(value_loss + policy_loss).backward()`
        return backward.place
    best: Optional[Statement] = None
    for statement in reading.statements_by_function.get((backward.place.file, backward.where.function), []):
        comes_before = statement.place.line < backward.place.line and not _is_elsewhere(reading, statement)
        if comes_before and _assigns(statement, name) and _computes(statement):
            best = statement if best is None or statement.place.line > best.place.line else best
    if best is not None or reading.is_ported:
        return best.place if best is not None else None
    return _find_unknown_loss(reading, backward, name)


def _find_unknown_loss(reading: Reading, backward: Call, name: str) -> Optional[Place]:
    """Find the assignment of a loss whose function nothing is known of but its name."""
    tree = reading.parse(backward.place.file)
    lines = []
    for function in list_statements(tree) if tree is not None else ():
        is_around = isinstance(function, ast.FunctionDef) and reading.contains_line(function, backward.place.line)
        for node in list_statements(function) if is_around else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.lineno < backward.place.line:
                is_loss = _LOSS_NAME.search(name_last(write_dotted(node.value.func)))
                if is_loss and any(write_dotted(target) == name for target in node.targets):
                    lines.append((node.lineno, node.col_offset + 1))
    return Place(backward.place.file, *max(lines)) if lines else None


def _name_differentiated(backward: Call) -> str:
    """Name the variable that a backward pass begins at: `loss` of `scaler.scale(loss).backward()`, too."""
    if any(one.kind is Kind.LOSS for argument in backward.arguments for one in argument):
        return write_dotted(backward.node.args[0]) if backward.node.args else ""
    node = backward.node.func
    owner = node.value if isinstance(node, ast.Attribute) else node
    return write_dotted(owner.args[0] if isinstance(owner, ast.Call) and owner.args else owner)


def _assigns(statement: Statement, name: str) -> bool:
    return isinstance(statement.node, ast.Assign) and any(write_dotted(t) == name for t in statement.node.targets)


def _computes(statement: Statement) -> bool:
    """Tell whether an assignment computes a loss, and does not just take it from the model's results or scale it."""
    value = getattr(statement.node, "value", None)
    if not isinstance(value, (ast.BinOp, ast.Call, ast.UnaryOp)):
        return False
    return not any(_comes_of_model(one) for one in statement.objects if one.kind in TENSOR_KINDS)


def _comes_of_model(program_object: ProgramObject) -> bool:
    """Tell whether a loss is a model's own, be it scaled."""
    if any(part.kind in (Kind.MODULE, Kind.PORT) for part in program_object.parts):
        return True
    if program_object.call is None and program_object.name in (".loss", "part", "[]"):
        return True
    if program_object.name in ("/", "*"):
        # only a number has a gradient: a result that is no more than scaled is the model's loss
        tensors = [part for part in program_object.parts if part.kind in TENSOR_KINDS]
        return bool(tensors) and all(map(_comes_of_model, tensors))
    losses = [part for part in program_object.parts if part.kind is Kind.LOSS]
    others = [part for part in program_object.parts if part.kind in (Kind.OUTPUT, Kind.BATCH)]
    return bool(losses) and not others and all(_comes_of_model(part) for part in losses)
