"""Judge loops over batches by what goes from one to the next, what the host reads and what ends the loop.

It finds slips in their lines as well.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Sequence, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, LoopKind, Statement, Where
from porting.source.files import list_nodes, list_statements
from porting.source.rules.guards import is_of_one_rank, iter_words, mentions
from porting.source.rules.names import name_last, write_dotted
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, collect_lines, rule
from porting.source.rules.steps import UPDATES, iter_gradients_read
from porting.source.rules.weights import is_of_loop, is_weight, iter_averaged

__all__ = [
    "iter_carried_states",
    "iter_comparison_slips",
    "iter_data_from_models",
    "iter_early_exits",
    "iter_host_reads",
]


@rule(everywhere=True)
def iter_comparison_slips(reading: Reading) -> Iterator[Finding]:
    """B022: `a == b` stands as a statement of its own."""
    for statement in reading.facts.statements:
        node = statement.node
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Compare):
            continue
        is_equality = len(node.value.ops) == 1 and isinstance(node.value.ops[0], ast.Eq)
        is_assignable = isinstance(node.value.left, (ast.Name, ast.Attribute, ast.Subscript))
        # a notebook shows what its last line compares
        if is_equality and is_assignable and ".ipynb" not in statement.place.file:
            yield reading.report("B022", statement.place)


# -------------------------------------------------------------------------------- values read in each step


# what a port's call returns is on the host already
@rule(Programs.PLAIN)
def iter_host_reads(reading: Reading) -> Iterator[Finding]:
    """D020: the host reads a value of the device in every step of a loop."""
    lines: Set[Tuple[str, int]] = set()
    for place, where in _iter_reads(reading):
        line = (place.file, place.line)
        if line not in lines and _is_each_step(reading, where):
            lines.add(line)
            yield reading.report("D020", place)


def _iter_reads(reading: Reading) -> Iterator[Tuple[Place, Where]]:
    updated = collect_lines((*UPDATES, iter_gradients_read), reading)
    for read in reading.facts.reads:
        is_of_device = _are_results(read.objects) or any(map(is_weight, read.objects)) or not read.objects
        if read.asks in ("value", "text") and is_of_device and not read.where.in_forward:
            yield read.place, read.where
        is_weight_read = read.asks == "data" and is_of_loop(read.where) and any(map(is_weight, read.objects))
        if is_weight_read and (read.place.file, read.place.line) not in updated and reading.find_batch_loop(read.where):
            yield read.place, read.where
    averaged = [(place, where) for place, where in iter_averaged(reading) if is_of_loop(where)]
    yield from (one for one in averaged if reading.find_batch_loop(one[1]) is not None)
    for call in reading.facts.list_methods("update_parameters", "state_dict"):
        # a checkpoint only keeps it
        heads = (node.iter for node in reading.files_of_loops if isinstance(node, ast.For))
        reads_all = call.is_method("update_parameters") or any(reading.contains(head, call.node) for head in heads)
        if call.is_on(Kind.MODULE) and reading.find_batch_loop(call.where) is not None and reads_all:
            yield call.place, call.where
    for call in reading.facts.list_methods("cpu", "to"):
        if not call.where.in_forward and _are_results(call.receiver):
            if call.is_method("cpu") or _names_host(call):
                yield call.place, call.where


def _are_results(objects: Sequence) -> bool:
    return any(one.kind in (Kind.OUTPUT, Kind.LOSS) for one in objects)


def _names_host(call: Call) -> bool:
    """Tell whether a tensor is moved to the CPU, and not to whatever device there is."""
    given = [*call.node.args[:1], *(word.value for word in call.node.keywords if word.arg == "device")]
    objects = [one for argument in (*call.arguments[:1], call.keywords.get("device", ())) for one in argument]
    made = [one.call.node.args[:1] for one in objects if one.name == "torch.device" and one.call is not None]
    values = [*given, *(value for values in made for value in values)]
    return any(isinstance(value, ast.Constant) and value.value == "cpu" for value in values)


def _is_each_step(reading: Reading, where: Where) -> bool:
    loop = reading.find_batch_loop(where)
    if loop is None:
        return where.function in reading.step_functions
    inner = [guard for guard in where.guards if reading.contains(loop.node, _strip(guard))]
    # what comes with each step of the optimizer comes with each call of a port, which accumulates by itself
    return not any(_is_rare(guard) for guard in inner if guard not in reading.guards_of_steps)


def _strip(guard: ast.expr) -> ast.expr:
    while isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not):
        guard = guard.operand
    return guard


def _is_rare(guard: ast.expr) -> bool:
    if is_of_one_rank((guard,)) and not any(isinstance(part, ast.Mod) for part in list_nodes(guard)):
        return False
    if any(isinstance(part, ast.Mod) for part in list_nodes(guard)) or _is_for_one_round(guard):
        return True
    return mentions((guard,), r"log_|verbose|debug|print|should_|last_batch")


def _is_for_one_round(guard: ast.expr) -> bool:
    """Tell whether a condition picks one round, by its number or as the first: `i == 0`, `total is None`."""
    if not isinstance(guard, ast.Compare):
        return False
    is_first = isinstance(guard.ops[0], ast.Is) and isinstance(guard.comparators[0], ast.Constant)
    is_equality = isinstance(guard.ops[0], ast.Eq)
    return (
        is_first
        or is_equality
        and any(isinstance(part, ast.Constant) and isinstance(part.value, int) for part in list_nodes(guard))
    )


# -------------------------------------------------------------------------------- state


@rule(Programs.PLAIN)
def iter_carried_states(reading: Reading) -> Iterator[Finding]:
    """B019: a state that the model returns is its input in the next batch."""
    detaching = {call.where.function for call in reading.facts.list_methods("detach", "detach_")}
    for statement in reading.facts.statements:
        loop = reading.find_batch_loop(statement.where)
        if loop is None or statement.where.in_forward or not isinstance(statement.node, ast.Assign):
            continue
        names = {name for target in statement.node.targets for name in _collect_names(target)}
        if _detaches(reading, statement, names, detaching) and _is_returned_again(loop.node, names):
            yield reading.report("B019", statement.place)
    yield from _iter_undetached(reading)


def _collect_names(node: ast.AST) -> Set[str]:
    return {part.id for part in list_nodes(node) if isinstance(part, ast.Name)}


def _detaches(reading: Reading, statement: Statement, names: Set[str], detaching: Set[str]) -> bool:
    """Tell whether an assignment cuts a variable off from its own history."""
    value = statement.node.value  # type: ignore[attr-defined]
    if not names & _collect_names(value):
        return False
    calls = [part for part in list_nodes(value) if isinstance(part, ast.Call)]
    if any(isinstance(call.func, ast.Attribute) and call.func.attr in ("detach", "detach_") for call in calls):
        return True
    own = {reading.calls_by_node[call].name for call in calls if call in reading.calls_by_node}
    return bool(own & detaching)


def _is_returned_again(loop: ast.AST, names: Set[str]) -> bool:
    """Tell whether a call takes a variable and returns its next value: `output, hidden = model(x, hidden)`."""
    for node in list_statements(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = {name for target in node.targets for name in _collect_names(target)}
            given = [*node.value.args, *(word.value for word in node.value.keywords)]
            taken = {argument.id for argument in given if isinstance(argument, ast.Name)}
            if len(given) > 1 and names & targets & taken:
                return True
    return False


def _iter_undetached(reading: Reading) -> Iterator[Finding]:
    """Yield states that go on without being cut off, as under `no_grad`."""
    for statement in reading.facts.statements:
        node = statement.node
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or statement.where.in_forward:
            continue
        loop = reading.find_batch_loop(statement.where)
        call = reading.calls_by_node.get(node.value)
        if loop is None or call is None or not call.is_on(Kind.MODULE) or call.name.startswith("."):
            continue
        targets = {name for target in node.targets for name in _collect_names(target)}
        carried = targets & {argument.id for argument in node.value.args if isinstance(argument, ast.Name)}
        # what a function of its own assigns begins anew with each call
        if carried and reading.contains(loop.node, node) and not _is_set_before(loop.node, node, carried):
            yield reading.report("B019", statement.place)


def _is_set_before(loop: ast.AST, node: ast.AST, names: Set[str]) -> bool:
    """Tell whether a loop assigns one of the names elsewhere: it is cut off there, or begins anew."""
    others = [part for part in list_statements(loop) if isinstance(part, ast.Assign) and part is not node]
    targets = {name for part in others for target in part.targets for name in _collect_names(target)}
    heads = _collect_names(loop.target) if isinstance(loop, ast.For) else set()
    return bool(names & (targets | heads))


# -------------------------------------------------------------------------------- environments


@rule(in_host_loops=False)
def iter_data_from_models(reading: Reading) -> Iterator[Finding]:
    """B020: an environment is stepped with what the model has chosen."""
    if reading.training_ports and reading.facts.list_methods("inference"):
        # experience is collected by the port that infers
        return
    for call in reading.facts.list_methods("step"):
        if not call.node.args or call.where.in_forward:
            continue
        # an environment around another one hands on what it was given
        if name_last(call.where.function) in ("step", "reset") or isinstance(call.node.args[0], ast.Constant):
            continue
        owner = name_last(write_dotted(call.node.func).rpartition(".")[0])
        made = any(
            re.match(r"(gym|gymnasium|procgen|pettingzoo|stable_baselines3)\b", one.name) for one in call.receiver
        )
        if made or not call.receiver and re.fullmatch(r"\w*envs?(ironment)?\d?", owner):
            yield reading.report("B020", call.place)


# -------------------------------------------------------------------------------- early exits


@rule(in_host_loops=False)
def iter_early_exits(reading: Reading) -> Iterator[Finding]:
    """B021: a loop over batches is left by what a step found, or after a number of batches."""
    seen: Set[ast.AST] = set()
    for fact in (*reading.backward_calls, *reading.port_calls):
        for loop in fact.where.loops:
            if loop.kind is LoopKind.BATCHES and loop.node not in seen:
                seen.add(loop.node)
                file = reading.files_of_loops.get(loop.node, "")
                for node in _list_breaks(loop.node) if file else ():
                    yield reading.report("B021", Place(file, node.lineno, node.col_offset + 1))


def _list_breaks(loop: ast.AST) -> List[ast.Break]:
    if not isinstance(loop, (ast.For, ast.While)):
        return []
    counters = _collect_counters(loop) if isinstance(loop, ast.For) else set()
    found: List[ast.Break] = []
    waiting: List[Tuple[ast.AST, bool]] = [(part, False) for part in loop.body]
    while waiting:
        node, is_early = waiting.pop()
        if isinstance(node, ast.Break) and is_early:
            found.append(node)
        if isinstance(node, (ast.For, ast.While, ast.FunctionDef)):
            continue
        if isinstance(node, ast.If):
            is_early = _is_early(node.test, counters)
        waiting.extend((part, is_early) for part in ast.iter_child_nodes(node))
    return found


def _collect_counters(loop: ast.For) -> Set[str]:
    is_counted = isinstance(loop.iter, ast.Call) and name_last(write_dotted(loop.iter.func)) in ("enumerate", "range")
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
    return _collect_names(target) if is_counted else set()


def _is_early(test: ast.expr, counters: Set[str]) -> bool:
    if isinstance(test, ast.BoolOp):
        return any(_is_early(part, counters) for part in test.values)
    is_limit = isinstance(test, ast.Compare) and not isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))
    words = set(iter_words(test))
    return is_limit and bool(words & counters or any(re.search(r"(^|_)loss(es)?($|_)", word) for word in words))
