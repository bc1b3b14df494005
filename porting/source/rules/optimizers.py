"""Judge optimizers and schedules by what the device has, what it was given, and what it hears of rates."""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, LoopKind, ProgramObject, Where
from porting.source.files import list_nodes
from porting.source.rules.guards import are_exclusive
from porting.source.rules.names import name_last, name_unsupported_optimizer, write_dotted
from porting.source.rules.program_objects import collect_modules, share_module, tell_guess
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, rule

__all__ = [
    "iter_accumulation",
    "iter_foreign_tensors",
    "iter_lengths_in_schedules",
    "iter_rates_set_by_hand",
    "iter_several_optimizers",
    "iter_silent_schedules",
    "iter_unsupported_optimizers",
    "iter_unsupported_settings",
    "iter_withheld_optimizers",
]

_REFUSED = ("amsgrad", "maximize")


@rule(in_host_loops=False)
def iter_unsupported_optimizers(reading: Reading) -> Iterator[Finding]:
    """O001: the device has no such optimizer."""
    for program_object in _list_optimizers(reading):
        name = name_unsupported_optimizer(program_object.name)
        if name and program_object.place is not None:
            fault = f"`{name}` has no counterpart on the device" if reading.is_ported else ""
            note = "" if reading.is_ported else f"the device has no `{name}`"
            yield reading.report("O001", program_object.place, fault=fault, note=note)


@rule(in_host_loops=False)
def iter_unsupported_settings(reading: Reading) -> Iterator[Finding]:
    """O002: the device's optimizer lacks a setting."""
    for program_object in _list_optimizers(reading):
        words = program_object.call.node.keywords if program_object.call is not None else []
        for word in words:
            is_set = isinstance(word.value, ast.Constant) and bool(word.value.value)
            if word.arg in _REFUSED and is_set and program_object.place is not None:
                yield reading.report("O002", program_object.place, note=f"the device's optimizers have no `{word.arg}`")


def _list_optimizers(reading: Reading) -> List[ProgramObject]:
    made = reading.facts.list_program_objects(Kind.OPTIMIZER)
    return list({one.place: one for one in made}.values())


@rule(in_host_loops=False)
def iter_foreign_tensors(reading: Reading) -> Iterator[Finding]:
    """O003: an optimizer changes a tensor that is no parameter of a model."""
    kept = {each for one in reading.facts.statements if _is_attribute(one.node) for each in one.objects}
    for program_object in _list_optimizers(reading):
        given = (
            program_object.call.arguments[:1] or [program_object.call.keywords.get("params", ())]
            if program_object.call is not None
            else []
        )
        for part in (part for objects in given for part in objects):
            is_own = part.kind is Kind.PARAMETERS or part.name.endswith(".Parameter") and part in kept
            is_own = is_own or any(made.kind in (Kind.MODULE, Kind.PARAMETERS) for made in reading.go_through(part))
            if part.kind in (Kind.TENSOR, Kind.BATCH) and not is_own and _is_trained(reading, part, program_object):
                if program_object.place is not None:
                    yield reading.report("O003", program_object.place, note=f"the tensor is made at {part.place}")


def _is_trained(reading: Reading, part: ProgramObject, optimizer: ProgramObject) -> bool:
    """Tell whether a tensor is made here and trained: beside a port, an optimizer may keep a schedule alone."""
    calls = (call for call in reading.facts.calls if call is not optimizer.call)
    is_given = any(part in call.given for call in calls)
    is_used = is_given or reading.is_made_of(reading.facts.list_program_objects(Kind.LOSS), [part])
    return part.call is not None and (is_used or not reading.is_ported)


def _is_attribute(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Attribute) for target in targets)


# -------------------------------------------------------------------------------- handed over


@rule(Programs.PORTED, in_host_loops=False)
def iter_withheld_optimizers(reading: Reading) -> Iterator[Finding]:
    """O012: the optimizer that the program configures is not the one that the port was given."""
    given = {part for port in reading.ports for part in reading.go_through(port) if part.kind is Kind.OPTIMIZER}
    for call in reading.facts.list_methods("setOptimizer"):
        given.update(one for argument in call.arguments for one in argument)
    places = {one.place for one in given if one.place is not None}
    others = [
        one
        for one in reading.facts.list_program_objects(Kind.OPTIMIZER)
        if not {one} & given and one.place not in places
    ]
    for port in reading.training_ports:
        has_own = any(part.kind is Kind.OPTIMIZER for part in port.parts)
        for optimizer in others:
            # where a port has its optimizer, another one that nothing uses is none that the program configures
            is_other = not has_own or _is_used(reading, optimizer, beside=port)
            if is_other and port.place is not None and _is_configured(reading, port, optimizer):
                yield reading.report("O012", port.place, note=f"`{optimizer.name}` is made at {optimizer.place}")
                break


def _is_used(reading: Reading, optimizer: ProgramObject, *, beside: ProgramObject) -> bool:
    """Tell whether an optimizer is used; one that is made after a port for more than the state of the port's own."""
    makers = [one.call.order for one in (beside, optimizer) if one.call is not None]
    passing = ("state_dict", "load_state_dict") if makers == sorted(makers) else ()
    calls = (call for call in reading.facts.calls if not call.is_method(*passing))
    return any(optimizer in objects for call in calls for objects in (call.receiver, *call.arguments))


def _is_configured(reading: Reading, port: ProgramObject, optimizer: ProgramObject) -> bool:
    """Tell whether an optimizer is for what a port trains."""
    if port.call is None or optimizer.call is None or reading.is_excluded(optimizer.call.where):
        return False
    is_unknown = not collect_modules([port]) and not collect_modules([optimizer])
    # of a model that nothing is known of there is only one
    is_for_port = port in reading.go_through(optimizer) or is_unknown or share_module([port], [optimizer])
    return is_for_port and reading.may_meet(port.call.where, optimizer.call.where)


# -------------------------------------------------------------------------------- several


@rule(Programs.PLAIN)
def iter_several_optimizers(reading: Reading) -> Iterator[Finding]:
    """O014: a second optimizer is stepped beside the first."""
    seen: Set[Optional[Place]] = set()
    configured = list(_iter_configured(reading))
    for optimizer in (*_iter_of_layers(reading), *configured):
        seen.add(optimizer.place)
    steps: Dict[Optional[Place], Set[Call]] = {}
    for call in reading.facts.list_methods("step"):
        for place in _collect_stepped(call):
            steps.setdefault(place, set()).add(call)
    firsts: List[ProgramObject] = []
    for optimizer in _list_optimizers(reading):
        if configured and optimizer.call is None:
            # what `self.optimizers()` gives are those that were configured
            continue
        if any(_are_both_stepped(first, optimizer, steps) for first in firsts):
            seen.add(optimizer.place)
        firsts.append(optimizer)
    for place in seen:
        if place is not None:
            yield reading.report("O014", place)


def _iter_configured(reading: Reading) -> Iterator[ProgramObject]:
    """Yield the optimizers beside the first that a Lightning module configures."""
    first: Dict[str, ProgramObject] = {}
    for optimizer in _list_optimizers(reading):
        function = optimizer.call.where.function if optimizer.call is not None else ""
        if name_last(function) == "configure_optimizers":
            other = first.setdefault(function, optimizer)
            guards = [one.call.where.guards for one in (other, optimizer) if one.call is not None]
            if other is not optimizer and not are_exclusive(*guards):
                yield optimizer


def _collect_stepped(call: Call) -> Set[Optional[Place]]:
    """Collect the places where the optimizers are made that a call may step."""
    objects = (*call.receiver, *(one for argument in call.arguments for one in argument))
    return {one.place for one in objects if one.kind is Kind.OPTIMIZER}


def _are_both_stepped(one: ProgramObject, other: ProgramObject, steps: Dict[Optional[Place], Set[Call]]) -> bool:
    """Tell whether each of two optimizers is stepped by a call that does not step the other, in one training."""
    of_one, of_other = steps.get(one.place, set()), steps.get(other.place, set())
    if not any(_are_of_one_training(a.where, b.where) for a in of_one - of_other for b in of_other - of_one):
        return False
    if one.call is None or other.call is None:
        return True
    return not are_exclusive(one.call.where.guards, other.call.where.guards)


def _are_of_one_training(one: Where, other: Where) -> bool:
    """Tell whether two steps stand in one loop, or, where no loop is known, in methods of one class."""
    if one.loops and other.loops:
        return _share_loop(one, other)
    if one.function == other.function and (one.loops or other.loops):
        # one training behind another
        return False
    return one.function.rpartition(".")[0] == other.function.rpartition(".")[0]


def _iter_of_layers(reading: Reading) -> Iterator[ProgramObject]:
    """Yield optimizers that modules make for themselves, one for each layer."""
    names = {one.name for one in reading.facts.list_program_objects(Kind.MODULE)}
    made: Dict[str, List[ProgramObject]] = {}
    for optimizer in _list_optimizers(reading):
        made.setdefault(optimizer.call.where.function if optimizer.call is not None else "", []).append(optimizer)
    for function, optimizers in made.items():
        owner, _, method = function.rpartition(".")
        if method == "__init__" and owner in names and len(optimizers) == 1 and _has_own_weights(optimizers[0]):
            yield optimizers[0]


def _has_own_weights(optimizer: ProgramObject) -> bool:
    arguments = optimizer.call.node.args[:1] if optimizer.call is not None else []
    return any(write_dotted(argument) == "self.parameters" for argument in arguments)


# -------------------------------------------------------------------------------- accumulation


@rule(in_host_loops=False)
def iter_accumulation(reading: Reading) -> Iterator[Finding]:
    """O011: several backward passes make one step, by an `if` around the step or a loop around the passes."""
    passes = reading.port_calls if reading.is_ported else reading.backward_calls
    steps = reading.optimizer_steps
    looped = [one for one in passes if one.where.loops and _is_accumulating(one.where.loops[-1].node)]
    places: Dict[Place, None] = {}
    for step in filter(reading.concerns_port, steps):
        for place in _locate_accumulation(reading, step, passes, looped):
            places.setdefault(place)
    for call in reading.facts.list_methods("accumulate"):
        if any(one.name.startswith("accelerate.") for one in call.receiver):
            places.setdefault(call.place)
    for place in places:
        yield reading.report("O011", place)


def _locate_accumulation(reading: Reading, step: Call, passes: List[Call], looped: List[Call]) -> Iterator[Place]:
    for guard in step.where.guards:
        is_periodic = any(isinstance(part, ast.Mod) for part in list_nodes(guard))
        loop = step.where.loops[-1] if step.where.loops else None
        if is_periodic and loop is not None and _is_around_step_alone(reading, guard, step, passes):
            place = _place_of_guard(reading, guard)
            if place is not None:
                yield place
                return
    around = {loop.node for loop in step.where.loops}
    for one in looped:
        inner = one.where.loops[-1]
        if inner.node not in around and _share_loop(one.where, step.where):
            yield _place_of_loop(reading, inner.node, one)
            return


def _is_around_step_alone(reading: Reading, guard: ast.expr, step: Call, passes: List[Call]) -> bool:
    inside = [one for one in passes if one.where.loops[-1:] == step.where.loops[-1:]]
    return bool(inside) and all(not any(guard is other for other in one.where.guards) for one in inside)


_ACCUMULATING = re.compile(r"accum|micro_?(step|batch)|sub_?batch|interior", re.IGNORECASE)


def _is_accumulating(node: ast.AST) -> bool:
    if not isinstance(node, ast.For):
        return False
    heads = [part for head in (node.target, node.iter) for part in list_nodes(head)]
    words = [getattr(part, "id", getattr(part, "attr", "")) for part in heads]
    return any(_ACCUMULATING.search(word) for word in words)


def _share_loop(one: Where, other: Where) -> bool:
    nodes = {loop.node for loop in other.loops}
    return not nodes or any(loop.node in nodes for loop in one.loops)


def _place_of_guard(reading: Reading, guard: ast.expr) -> Optional[Place]:
    # the step may stand behind an `if` that goes on to the next batch
    tests = (guard, guard.operand if isinstance(guard, ast.UnaryOp) else guard)
    for statement in reading.facts.statements:
        if isinstance(statement.node, ast.If) and statement.node.test in tests:
            return statement.place
    return None


def _place_of_loop(reading: Reading, node: ast.AST, call: Call) -> Place:
    facts = [fact for fact in (call, *reading.facts.calls) if reading.contains(node, fact.node)]
    file = facts[0].place.file if facts else call.place.file
    return Place(file, getattr(node, "lineno", call.place.line), getattr(node, "col_offset", 0) + 1)


# -------------------------------------------------------------------------------- schedules

_SCHEDULER_NAME = re.compile(r"sched", re.IGNORECASE)
# there is no scheduler to connect
_RATE_REMEDY = (
    "keep the line where `to_ipu` got this optimizer: a port reads its settings before each call; "
    "with PopTorch, `model.setOptimizer(optimizer)` behind it"
)
_SCHEDULER_STEPS = ("step", "step_update", "step_epoch")


@rule(in_host_loops=False)
def iter_silent_schedules(reading: Reading) -> Iterator[Finding]:
    """O013: the learning rate changes, and the device is not told."""
    if reading.is_ported and _tells_device(reading):
        return
    for call in reading.facts.calls:
        # a schedule of schedules steps them in its own step
        is_inner = call.where.in_forward or name_last(call.where.function) in _SCHEDULER_STEPS
        is_stepped = call.is_method(*_SCHEDULER_STEPS) and _is_scheduler(reading, call)
        if not is_inner and (is_stepped or _is_attached(call)):
            schedulers = [one for one in call.receiver if one.kind is Kind.SCHEDULER]
            yield reading.report("O013", call.place, guess=tell_guess(schedulers) if reading.is_ported else "")


@rule(Programs.PLAIN)
def iter_rates_set_by_hand(reading: Reading) -> Iterator[Finding]:
    """O013: a statement sets the learning rate."""
    for statement in reading.facts.statements:
        if _sets_rate(statement.node):
            yield reading.report("O013", statement.place, remedy=_RATE_REMEDY)


def _tells_device(reading: Reading) -> bool:
    ports = reading.facts.list_program_objects(Kind.PORT)
    # a port that `to_ipu` makes reads the settings of torch's optimizer before each call
    follows = bool(ports) and all(port.name == "porting.to_ipu" for port in ports)
    return follows or bool(reading.facts.list_methods("setOptimizer", "scheduler", "set_optimizer"))


def _is_scheduler(reading: Reading, call: Call) -> bool:
    if call.receiver:
        return call.is_on(Kind.SCHEDULER)
    owner = name_last(write_dotted(call.node.func).rpartition(".")[0])
    return not reading.is_ported and bool(_SCHEDULER_NAME.search(owner))


def _is_attached(call: Call) -> bool:
    """Tell whether Ignite's engine is given a scheduler, which it steps by itself."""
    attached = [*call.arguments[1:2]] if call.is_method("add_event_handler") else []
    attached += [call.keywords.get("lr_scheduler", ())] if call.name.startswith("ignite.") else []
    return any(one.kind is Kind.SCHEDULER for argument in attached for one in argument)


def _sets_rate(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(_is_rate(target) for target in targets)


def _is_rate(target: ast.AST) -> bool:
    if not isinstance(target, ast.Subscript):
        return False
    return any(isinstance(part, ast.Constant) and part.value == "lr" for part in list_nodes(target.slice))


_LENGTH = re.compile(r"^\s*([\w.]+)\s*(?::[^=]*)?=(?!=)(.*)$")


@rule(in_host_loops=False)
def iter_lengths_in_schedules(reading: Reading) -> Iterator[Finding]:
    """B016: the number of a loader's batches goes into a schedule."""
    measured = [call for call in reading.facts.calls if call.name == "builtins.len" and call.arguments]
    lengths = {call: [one for one in call.arguments[0] if one.kind is Kind.LOADER] for call in measured}
    schedulers = reading.facts.list_program_objects(Kind.SCHEDULER)
    makers = [one.call for one in schedulers if one.call is not None and one in one.call.result]
    # somebody is told a schedule's length, whoever it is
    words = (word for call in reading.facts.calls if any(lengths.values()) for word in call.node.keywords)
    readers = [*(maker.node for maker in makers), *(one for one in words if _LENGTHS.fullmatch(one.arg or ""))]
    for call, loaders in lengths.items():
        is_read = any(reading.contains(node, call.node) for node in readers) if loaders else False
        if is_read or loaders and _is_scheduled(reading, call, makers):
            yield reading.report("B016", call.place, guess=tell_guess(loaders))


_LENGTHS = re.compile(r"(num_)?(total|train(ing)?)_steps|t_total|steps_per_epoch|num_updates")


def _is_scheduled(reading: Reading, length: Call, makers: List[Call]) -> bool:
    """Tell whether a length stands in a variable that a call reads which makes a schedule."""
    if any(loop.kind is LoopKind.BATCHES for loop in length.where.loops):
        return False
    lines = reading.read_lines(length.place.file)
    if not 0 < length.place.line <= len(lines):
        return False
    match = _LENGTH.match(lines[length.place.line - 1])
    wanted = _follow_names(lines, match[1]) if match else set()
    read = {write_dotted(part) for maker in makers for part in list_nodes(maker.node)}
    return bool(wanted & (read - {""}))


def _follow_names(lines: Sequence[str], name: str) -> Set[str]:
    """Follow a variable into those that are computed of it, from line to line."""
    names = {name}
    assigned: List[Tuple[str, str]] = [match.groups() for match in map(_LENGTH.match, lines) if match]  # type: ignore[misc]
    for _ in range(3):
        for target, value in assigned:
            if any(re.search(rf"(?<![\w.]){re.escape(known)}(?!\w)", value) for known in names):
                names.add(target)
    return names
