"""Judge the calls of ports by the executor that each goes through.

A call has its arguments and its results, and the first one compiles.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Optional, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, ProgramObject
from porting.source.files import list_nodes, list_statements
from porting.source.rules.guards import are_exclusive
from porting.source.rules.names import name_last
from porting.source.rules.paths import collect_attributes_of_training, iter_unbound_uses
from porting.source.rules.program_objects import collect_modules, is_of_no_module
from porting.source.rules.reading import Reading
from porting.source.rules.scope import MAY_BE_BARE, Programs, rule

__all__ = [
    "iter_bare_calls",
    "iter_missing_warm_up",
    "iter_refused_arguments",
    "iter_returned_labels",
    "iter_unbound_names",
    "iter_validation",
    "iter_validation_of_ports",
]


# -------------------------------------------------------------------------------- validation


@rule(Programs.PLAIN)
def iter_validation(reading: Reading) -> Iterator[Finding]:
    """D014: validation goes through the model that trains."""
    evaluated: Set[ProgramObject] = set()
    told: Set[str] = set()
    for call in filter(_turns_training_off, reading.facts.calls):
        if _is_of_training(reading, call) and _is_validated(reading, call):
            evaluated.update(_list_modules(call))
            told.add(call.where.function)
            yield reading.report("D014", call.place)
    for call in _iter_calls_without_gradients(reading):
        # of a part of the model that was switched above
        is_told = call.where.in_evaluation and call.where.function in told
        if evaluated.isdisjoint(_list_modules(call)) and not is_told and _is_of_training(reading, call):
            yield reading.report("D014", call.place)


def _is_of_training(reading: Reading, call: Call) -> bool:
    """Tell whether the module that is called is trained, in a program that does not only infer."""
    modules = _list_modules(call)
    if not modules or not _are_trained(modules, reading.trained_modules):
        return False
    optimizers = reading.facts.list_program_objects(Kind.OPTIMIZER)
    makers = [one.call for one in optimizers if one.call is not None]
    trains = any(reading.may_meet(one.where, call.where) for one in (*makers, *reading.backward_calls))
    return trains and not (optimizers and all(map(is_of_no_module, optimizers)))


def _iter_calls_without_gradients(reading: Reading) -> Iterator[Call]:
    """List the calls of modules under `no_grad`; of one in a method of a module, the call of that method."""
    names = {one.name for one in reading.facts.list_program_objects(Kind.MODULE)}
    plain = [call for call in reading.facts.calls if _list_modules(call) and not call.name.startswith(".")]
    plain = [call for call in plain if not call.where.in_forward]
    inner = {call: call.where.function for call in plain if call.where.function.rpartition(".")[0] in names}
    without = {function for call, function in inner.items() if call.where.without_gradients}
    for call in reading.facts.calls:
        if call in inner or call.where.in_forward:
            continue
        called = {f"{one.name}{call.name}" for one in _list_modules(call)} if call.name.startswith(".") else set()
        is_made_of = called & (set(inner.values()) if call.where.without_gradients else without)
        if is_made_of or call.where.without_gradients and not call.name.startswith("."):
            yield call


def _list_modules(call: Call) -> List[ProgramObject]:
    given = call.arguments[0] if _makes_evaluator(call) and call.arguments else call.receiver
    return [one for one in given if one.kind is Kind.MODULE]


def _makes_evaluator(call: Call) -> bool:
    return call.name.startswith("ignite.") and call.name.endswith(".create_supervised_evaluator")


def _turns_training_off(call: Call) -> bool:
    if call.is_method("train"):
        return bool(call.node.args) and getattr(call.node.args[0], "value", None) is False
    return call.is_method("eval") or _makes_evaluator(call)


def _are_trained(modules: List[ProgramObject], trained: Set[ProgramObject]) -> bool:
    return not trained or bool(collect_modules(modules) & trained) or not _are_known(modules, trained)


def _are_known(modules: List[ProgramObject], trained: Set[ProgramObject]) -> bool:
    """Tell whether the modules are other ones than those trained, and not the same ones seen from elsewhere."""
    return all(module.call is not None for module in (*modules, *trained))


def _is_validated(reading: Reading, switch: Call) -> bool:
    """Tell whether a module is called in eval mode, and not only saved."""
    if _makes_evaluator(switch):
        return True
    loops = {loop.node for loop in switch.where.loops}
    modules = set(_list_modules(switch))
    for call in reading.module_calls:
        if modules.isdisjoint(call.receiver):
            continue
        off = call.where.in_evaluation or call.where.without_gradients
        off = off or any(loop.node in loops for loop in call.where.loops)
        if off:
            if not call.name.startswith(".") or call.is_method("forward", "generate", "sample"):
                return True
    return False


@rule(Programs.PORTED)
def iter_validation_of_ports(reading: Reading) -> Iterator[Finding]:
    """D014: validation goes through the port that trains."""
    ports = {port for port in reading.training_ports if port.name.endswith("trainingModel")}
    switched: Set[ProgramObject] = set()
    for call in filter(_turns_training_off, reading.facts.calls):
        on_way = ports.intersection(reading.list_met(call))
        if on_way:
            switched.update(call.receiver)
            yield reading.report("D014", call.place, note=MAY_BE_BARE if reading.may_be_bare(call) else "")
    for call in reading.facts.calls:
        is_bare = call.receiver and ports.issuperset(call.receiver) and not call.name.startswith(".")
        if is_bare and call.where.without_gradients and switched.isdisjoint(call.receiver):
            yield reading.report("D014", call.place)


# -------------------------------------------------------------------------------- the bare model


@rule(Programs.PORTED, in_host_loops=False)
def iter_bare_calls(reading: Reading) -> Iterator[Finding]:
    """D015: a loop trains the module that is in a port, past the port."""
    loops = {call.where.loops[-1].node for call in reading.backward_calls if call.where.loops}
    for call in reading.facts.calls:
        modules = set(_list_modules(call)) & reading.ported_modules
        if not modules or call.is_on(Kind.PORT) or call.name.startswith(".") or call.where.in_forward:
            continue
        in_loop = bool(call.where.loops) and call.where.loops[-1].node in loops
        if in_loop and not call.where.without_gradients and _comes_behind(reading, call):
            yield reading.report("D015", call.place)


def _comes_behind(reading: Reading, call: Call) -> bool:
    makers = [port.call for port in reading.training_ports if port.call is not None]
    return any(
        maker.order < call.order and not are_exclusive(maker.where.guards, call.where.guards) for maker in makers
    )


# -------------------------------------------------------------------------------- warm-up

_TIMERS = re.compile(
    r"time\.(time|perf_counter|monotonic|process_time)(_ns)?|timeit\.default_timer|datetime\.(\w+\.)*now"
)
_COMPILES = ("compile", "warm_up", "compileAndExport", "loadExecutable", "prepare", "load_executable")


@rule(Programs.PORTED, in_host_loops=False)
def iter_missing_warm_up(reading: Reading) -> Iterator[Finding]:
    """D016: the first call of a loop that is timed compiles."""
    timers = [call for call in reading.facts.calls if _TIMERS.fullmatch(call.name) and not call.where.in_forward]
    warmed = {one for call in reading.facts.calls if _warms_up(call) for one in call.receiver}
    for call in reading.port_calls:
        is_timed = sum(reading.may_meet(timer.where, call.where) for timer in timers) > 1
        if is_timed and call.where.loops and not warmed & set(call.receiver):
            yield reading.report("D016", call.place)
            return


def _warms_up(call: Call) -> bool:
    return call.is_method(*_COMPILES) or not call.name.startswith(".") and not call.where.loops


# -------------------------------------------------------------------------------- arguments and results


@rule(Programs.PORTED)
def iter_refused_arguments(reading: Reading) -> Iterator[Finding]:
    """L014: a module that may be in the port takes other arguments than its call gives."""
    for call in reading.facts.calls:
        ports = [one for one in call.receiver if one.kind is Kind.PORT and one.name.startswith("poptorch.")]
        if not ports or call.name.startswith(".") or any(isinstance(part, ast.Starred) for part in call.node.args):
            continue
        modules = {part for port in ports for part in port.parts if part.kind is Kind.MODULE}
        refusing = [module for module in modules if not _takes(reading, module, call)]
        if refusing:
            made = sorted({f"`{name_last(module.name)}` of {module.place}" for module in refusing})
            names = ", ".join(made)
            yield reading.report("L014", call.place, note=f"the port may hold {names}")


def _takes(reading: Reading, module: ProgramObject, call: Call) -> bool:
    found = _find_method(reading, module, "forward")
    if found is None:
        return True
    arguments = found[1].args
    names = [argument.arg for argument in (*getattr(arguments, "posonlyargs", ()), *arguments.args)][1:]
    given = len(call.node.args)
    if given > len(names) and arguments.vararg is None:
        return False
    known = {*names, *(argument.arg for argument in arguments.kwonlyargs)}
    return arguments.kwarg is not None or all(word.arg is None or word.arg in known for word in call.node.keywords)


_LABEL = re.compile(r"label|target|truth|mask|^y$|^y_|_y$", re.IGNORECASE)


@rule(Programs.PORTED)
def iter_returned_labels(reading: Reading) -> Iterator[Finding]:
    """L013: a `forward` that is ported returns the labels that it was given."""
    modules = {part for port in reading.training_ports if port.name.startswith("poptorch.") for part in port.parts}
    functions = {f"{module.name}.forward": module for module in modules if module.kind is Kind.MODULE}
    for statement in reading.facts.statements:
        module = functions.get(statement.where.function)
        if (
            module is None
            or not isinstance(statement.node, ast.Return)
            or not isinstance(statement.node.value, ast.Tuple)
        ):
            continue
        found = _find_method(reading, module, "forward")
        given = {argument.arg for argument in found[1].args.args[1:]} if found else set()
        returned = {part.id for part in statement.node.value.elts if isinstance(part, ast.Name)}
        if any(_LABEL.search(name) for name in returned & given):
            yield reading.report("L013", statement.place)


# -------------------------------------------------------------------------------- unbound names


@rule(Programs.PORTED)
def iter_unbound_names(reading: Reading) -> Iterator[Finding]:
    """D019: a path through a function of a port uses what no statement on it has set."""
    functions = {(call.where.file, call.where.function): call for call in reading.port_calls}
    for file, name in functions:
        node = _find_function(reading, file, name)
        for use in iter_unbound_uses(node) if node is not None else ():
            yield reading.report(
                "D019", Place(file, use.lineno, use.col_offset + 1), note=f"`{use.id}` has no value there"
            )
    yield from _iter_attributes(reading)


def _find_method(reading: Reading, program_object: ProgramObject, name: str) -> Optional[Tuple[str, ast.FunctionDef]]:
    """Find a method of a program object whose class the program defines, with its file."""
    wanted = f"{program_object.name}.{name}"
    places = (*(call.where for call in reading.facts.calls), *(one.where for one in reading.facts.statements))
    file = next((where.file for where in places if where.function == wanted), None)
    tree = reading.parse(file) if file else None
    class_name = program_object.name.rpartition(".")[2]
    classes = [node for node in list_statements(tree) if isinstance(node, ast.ClassDef)] if tree else []
    classes = [node for node in classes if node.name == class_name]
    # of several classes of one name, as functions define them, nobody knows which it is
    for part in classes[0].body if len(classes) == 1 else ():
        if isinstance(part, ast.FunctionDef) and part.name == name and file:
            return file, part
    return None


def _find_function(reading: Reading, file: str, name: str) -> Optional[ast.FunctionDef]:
    tree = reading.parse(file)
    for node in list_nodes(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == name_last(name):
            return node
    return None


def _iter_attributes(reading: Reading) -> Iterator[Finding]:
    """Yield calls of a port with an attribute that only training sets, though the program infers, too."""
    if not any(port.name.endswith("inferenceModel") for port in reading.ports):
        return
    seen: Set[Tuple[str, int]] = set()
    for call in reading.port_calls:
        tree = reading.parse(call.place.file)
        names = collect_attributes_of_training(tree) if tree is not None else set()
        used = {
            part.attr for argument in call.node.args for part in list_nodes(argument) if isinstance(part, ast.Attribute)
        }
        if names & used and (call.place.file, call.place.line) not in seen:
            infers = any(one.kind is Kind.PORT and one.name.endswith("inferenceModel") for one in call.receiver)
            if infers:
                seen.add((call.place.file, call.place.line))
                note = f"`{sorted(names & used)[0]}` is set for training only"
                yield reading.report("D019", call.place, note=note)
