"""Find numbers that a loop counts, or computes of its counts, where a compiled step reads them.

Such a step goes on with the first of them (C020).
"""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, LoopKind, Statement, Where
from porting.source.files import list_nodes, list_statements
from porting.source.library import TENSOR_KINDS
from porting.source.rules.reading import Reading

__all__ = ["iter_annealed_values"]

_REMEDY = "hand the number over as a tensor among the call's inputs, or keep it in a buffer that the loop writes"


class _Counted:
    """The variables of each training loop whose numbers change with the steps."""

    def __init__(self, reading: Reading) -> None:
        self._loops = reading.files_of_loops
        self._known: Dict[ast.AST, Set[str]] = {}
        tensors = (one for one in reading.facts.statements if any(each.kind in TENSOR_KINDS for each in one.objects))
        assigned = (one.node for one in tensors if isinstance(one.node, (ast.Assign, ast.AugAssign)))
        parts = (part for node in assigned for part in list_nodes(node) if isinstance(part, ast.Name))
        self._others = {part.id for part in parts if isinstance(part.ctx, ast.Store)}

    def collect_around(self, where: Where) -> Set[str]:
        """Collect the variables of the loops around a fact: counts, and what is made of them."""
        around = [loop.node for loop in where.loops if loop.kind is not LoopKind.OTHER and loop.node in self._loops]
        if around and around[0] not in self._known:
            self._known[around[0]] = _collect_counted(around, self._others)
        return self._known[around[0]] if around else set()


def iter_annealed_values(reading: Reading) -> Iterator[Finding]:
    """C020: a number that changes from step to step goes into the loss, or into the model."""
    counted = _Counted(reading)
    for call in reading.facts.calls:
        # a module beside a port is called on the host, and a port's call refuses what is no tensor by itself
        takes = call.is_on(Kind.MODULE) and not call.name.startswith(".") and not reading.ports
        takes = takes or not call.is_method("backward", "item") and not reading.loss_parts.isdisjoint(call.result)
        names = counted.collect_around(call.where) if takes and not call.where.in_forward else set()
        if names and _has_counted(names, _list_plain(call)):
            yield reading.report("C020", call.place, remedy=_REMEDY)
    for statement in reading.facts.statements:
        node = statement.node
        if isinstance(node, (ast.Assign, ast.AugAssign)) and not statement.where.in_forward:
            objects = (*statement.objects, *(statement.targets if isinstance(node, ast.AugAssign) else ()))
            names = set() if reading.loss_parts.isdisjoint(objects) else counted.collect_around(statement.where)
            if _has_counted(names, [node.value]):
                yield reading.report("C020", statement.place, remedy=_REMEDY)
    yield from _iter_annealed_globals(reading, counted)
    yield from _iter_annealed_attributes(reading, counted)


def _list_plain(call: Call) -> List[ast.expr]:
    """List the arguments of a call that are no program objects."""
    given = [*zip(call.node.args, call.arguments)]
    given += [(one.value, call.keywords.get(one.arg or "", ())) for one in call.node.keywords]
    return [node for node, objects in given if not objects]


def _has_counted(names: Set[str], nodes: Sequence[Optional[ast.expr]]) -> bool:
    """Tell whether one of the variables is a factor, a part of a sum, or what a number is computed of."""
    for node in nodes if names else ():
        if node is not None and _name_variable(node) in names:
            return True
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
        parts += node.args if isinstance(node, ast.Call) and _computes_number(node) else []
        if _has_counted(names, parts):
            return True
    return False


def _iter_annealed_globals(reading: Reading, counted: _Counted) -> Iterator[Finding]:
    """Yield what is annealed in a variable of the module, which `forward` or a loss reads."""
    annealed = {(call.where.file, name) for call in reading.backward_calls for name in _collect_globals(counted, call)}
    inside = [call.where for call in reading.facts.calls if annealed and call.where.in_forward]
    bodies = {where.body: where.file for where in inside if where.body is not None}
    for body, file in bodies.items():
        own = {part.id for part in list_nodes(body) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        own |= {part.arg for part in list_nodes(body) if isinstance(part, ast.arg)}
        for part in list_nodes(body):
            if isinstance(part, ast.Name) and part.id not in own and (file, part.id) in annealed:
                yield reading.report("C020", Place(file, part.lineno, part.col_offset + 1), remedy=_REMEDY)


def _collect_globals(counted: _Counted, call: Call) -> Set[str]:
    body = call.where.body
    declared = (
        {name for part in list_nodes(body) if isinstance(part, ast.Global) for name in part.names} if body else None
    )
    names = counted.collect_around(call.where)
    return names if declared is None else names & declared


def _iter_annealed_attributes(reading: Reading, counted: _Counted) -> Iterator[Finding]:
    """Yield attributes that `forward` or a loss reads of itself, and that the training sets to what it counts."""
    assigned = [one for one in reading.facts.statements if not one.where.in_forward and _find_attribute(one.node)]
    annealed = [one for one in assigned if _is_annealed(one, counted)]
    read = _collect_attributes_read(reading) if annealed else set()
    names = {name for _owner, name in read}
    for statement in annealed:
        target = _find_attribute(statement.node)
        owner = statement.where.function.rpartition(".")[0]
        if target is not None and target.attr in names:
            if _name_variable(target.value) != "self" or (owner, target.attr) in read:
                yield reading.report("C020", statement.place, remedy=_REMEDY)


def _find_attribute(node: ast.AST) -> Optional[ast.Attribute]:
    """Find the attribute that an assignment sets."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target if isinstance(target, ast.Attribute) else None


def _collect_attributes_read(reading: Reading) -> Set[Tuple[str, str]]:
    """Collect the attributes that methods in `forward` read of `self`, each with its class."""
    inside = {call.where.body: call.where.function for call in reading.facts.calls if call.where.in_forward}
    return {
        (function.rpartition(".")[0], part.attr)
        for body, function in inside.items()
        for part in (list_nodes(body) if body is not None else ())
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load) and _name_variable(part.value) == "self"
    }


def _is_annealed(statement: Statement, counted: _Counted) -> bool:
    """Tell whether an assignment comes again and again, and computes a number of what the loop or a trainer counts."""
    around = counted.collect_around(statement.where)
    by_trainers = set(filter(_COUNTED_BY_TRAINERS.search, map(_name_variable, list_nodes(statement.node))))
    comes_again = around or by_trainers or _CALLED_AGAIN.search(statement.where.function)
    return bool(comes_again) and _counts_rounds(statement.node, around | by_trainers)


_COUNTED_BY_TRAINERS = re.compile(r"\.(current_epoch|global_step|state\.(epoch|iteration|global_step))$")
_CALLED_AGAIN = re.compile(r"\.on_\w*(epoch|batch|step)\w*_(start|begin|end)$")


def _collect_counted(loops: Sequence[ast.AST], others: Set[str]) -> Set[str]:
    """Find the variables that count the rounds of loops, and those whose numbers are computed of them; not `others`."""
    found: Set[str] = set()
    nodes = [node for loop in loops for node in list_statements(loop)]
    for loop in loops:
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call):
            name = getattr(loop.iter.func, "id", "")
            first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
            if name in ("range", "trange", "enumerate") and isinstance(first, ast.Name):
                found.add(first.id)
    size = -1
    while size != len(found):
        size = len(found)
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)) and _counts_rounds(node, found):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(one for one in map(_name_variable, targets) if one and one not in others)
    return found


def _counts_rounds(node: ast.AST, counted: Set[str]) -> bool:
    """Tell whether an assignment computes a number of counted ones, or of what its variable was."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.AugAssign):
        return isinstance(value, ast.Constant) or value is not None and _name_variable(value) in counted
    loads = [part for part in list_nodes(node) if isinstance(getattr(part, "ctx", None), ast.Load)]
    names = set(map(_name_variable, loads)) - {""}
    own = set(map(_name_variable, getattr(node, "targets", ())))
    is_number = isinstance(value, (ast.BinOp, ast.IfExp)) or isinstance(value, ast.Call) and _computes_number(value)
    return is_number and bool(names & (counted | own))


def _computes_number(node: ast.Call) -> bool:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return name in ("min", "max", "float", "exp", "cos", "sqrt", "pow", "clip", "tanh", "sigmoid", "log") or bool(
        re.search(r"anneal|schedul|ramp|warm|weight|beta|temperature|tau|coef", name)
    )


def _name_variable(node: ast.AST) -> str:
    """Name a variable, an attribute or an entry with a constant key; empty for all else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _name_variable(node.value) if isinstance(node, (ast.Attribute, ast.Subscript)) else ""
    if isinstance(node, ast.Attribute) and inner:
        return f"{inner}.{node.attr}"
    key = getattr(node, "slice", None)
    # before Python 3.9
    key = getattr(key, "value", None) if type(key).__name__ == "Index" else key
    return f"{inner}[{key.value!r}]" if inner and isinstance(key, ast.Constant) else ""
