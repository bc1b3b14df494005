"""Find where a port is made: where model and optimizer exist under a name, before the loop that calls the model.

From the function of the training step it is climbed through the callers, in whose words the names of the step are then
said. Attributes of `self` meet in the method that makes, or lets make, both.
"""

from __future__ import annotations

import ast
import builtins
from contextlib import suppress
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

from porting.convert.bindings import Binding, list_bindings
from porting.convert.names import collect_reads, get_root, parse_expression, substitute
from porting.convert.program import Program
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import (
    Function,
    ProgramFile,
    find_argument,
    find_default,
    is_main_guard,
    list_parameters,
    write_node,
)
from porting.convert.warm_up import find_loader

__all__ = ["PortPlace", "find_place"]

_DEEPEST = 8
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, eq=False)
class PortPlace:
    """Where a port is made; `texts` are the expressions of the step in the words of this place."""

    file: ProgramFile
    anchor: ast.stmt
    texts: Dict[str, str]
    is_before: bool = True
    is_partial: bool = False
    """Whether the place is in a branch that not every run of the program takes."""

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.texts["model"]

    @property
    def optimizer(self) -> str:
        """The name of the optimizer."""
        return self.texts["optimizer"]

    @property
    def loader(self) -> str:
        """The name of the loader of the calls' arguments; empty where it is not known."""
        return self.texts.get("loader", "")


@dataclass(frozen=True, eq=False)
class _Level:
    """A function on the way up, the node in it that leads to the step, and what names are called there."""

    file: ProgramFile
    use: ast.AST
    texts: Dict[str, str]

    @property
    def scope(self) -> ast.AST:
        return self.file.find_scope(self.use)

    def refuse(self, reason: str) -> StepError:
        return StepError(self.file, self.use, reason)

    def assigns(self, name: str) -> bool:
        return bool(name) and next(self.file.iter_assignments(name, self.scope), None) is not None


def find_place(program: Program, step: TrainingStep) -> PortPlace:
    """Find the place of the port of a step's model, where its loader is known, too, if there is such a place.

    Raises StepError where there is none.
    """
    loader = find_loader(program, step)
    if loader:
        with suppress(StepError):
            return _find_place(program, step, {"loader": loader})
    return _find_place(program, step, {})


def _find_place(program: Program, step: TrainingStep, wanted: Mapping[str, str]) -> PortPlace:
    texts = {**wanted, "model": step.model, "optimizer": write_node(step.optimizer)}
    texts.update({name: name for name in step.constants})
    if step.max_norm is not None:
        texts.update({name: name for name in collect_reads(step.max_norm)})
    level = _Level(step.file, step.backward, texts)
    for _ in range(_DEEPEST):
        if level.texts["optimizer"].startswith("self."):
            return _find_among_attributes(program, step, level)
        if level.assigns(_get_root(level.texts["optimizer"])):
            return _settle(level)
        level = _climb(program, level)
    raise StepError(step.file, step.backward, "the optimizer is handed on through too many functions")


def _get_root(text: str) -> str:
    return get_root(parse_expression(text))


def _settle(level: _Level) -> PortPlace:
    """Place the port before the statement that leads to the step, behind all that assign its names."""
    file, use = level.file, level.file.get_statement(level.use)
    around = [block[number] for block, number in file.list_blocks(use)]
    depths: Dict[str, int] = {}
    for key in ("model", "optimizer", "loader"):
        text = level.texts.get(key, "self")
        root = _get_root(text)
        if root == "self":
            continue
        shared = [(one, file.measure_shared(use, one) - 1) for one in file.iter_assignments(root, level.scope)]
        found = [depth for one, depth in shared if depth >= 0 and one.lineno < around[depth].lineno]
        if found:
            depths[key] = max(found)
        elif isinstance(level.scope, ast.Module) or key == "optimizer":
            raise level.refuse(f"`{text}` is not assigned before the loop that trains")
        elif root not in list_parameters(level.scope):
            raise level.refuse(f"`{text}` is a global that a function would have to assign")
    if depths.get("loader", 0) > max(depths.get("model", 0), depths["optimizer"]):
        raise level.refuse("the loader is made anew for the same model")
    again = around[depths["optimizer"]]
    if depths.get("model", depths["optimizer"]) < depths["optimizer"] and file.find_loop(again) is not None:
        raise StepError(file, again, "the optimizer is made anew for the same model")
    depth = max(depths.values())
    # behind the command line
    depth += depth + 1 < len(around) and is_main_guard(around[depth])
    return PortPlace(file, around[depth], level.texts)


def _climb(program: Program, level: _Level) -> _Level:
    """Go to the caller of a level's function, and say the names in its words."""
    function = level.scope
    if not isinstance(function, ast.FunctionDef):
        raise level.refuse(f"nothing assigns `{level.texts['optimizer']}`")
    callers = list(program.iter_callers(level.file, function))
    if len({(id(file), id(file.find_function(call))) for file, call in callers}) != 1:
        raise StepError(level.file, function, f"`{function.name}` is called from {len(callers)} places, not from one")
    file, call = callers[0]
    texts = {key: _say_above(level, function, file, call, text) for key, text in level.texts.items()}
    if len({tuple(_dump(find_argument(function, one, text)) for text in texts) for _, one in callers}) > 1:
        raise StepError(file, callers[1][1], f"`{function.name}` is called with several models")
    return _Level(file, call, texts)


def _dump(node: Optional[ast.expr]) -> str:
    return "" if node is None else ast.dump(node)


def _say_above(level: _Level, function: ast.FunctionDef, file: ProgramFile, call: ast.Call, text: str) -> str:
    """Say an expression of a function in the words of its caller."""
    root = _get_root(text)
    if root == "self":
        if isinstance(call.func, ast.Attribute) and write_node(call.func.value) == "self":
            return text
        raise level.refuse(f"`{text}` has another name where `{function.name}` is called")
    if root in list_parameters(function):
        given = find_argument(function, call, root) or find_default(function, root)
        if given is None or not _is_name(given):
            raise StepError(file, call, f"`{root}` of `{function.name}` is given by a value without a name")
        return substitute(parse_expression(text), {root: write_node(given)})[0]
    own = list(level.file.iter_assignments(root, function))
    if own:
        value = own[0].value if len(own) == 1 and isinstance(own[0], ast.Assign) and text == root else None
        if value is None or not all(_is_global(level.file, one) for one in collect_reads(value)):
            raise StepError(level.file, own[0], f"`{root}` exists in `{function.name}` alone")
        text = write_node(value)
    names = collect_reads(parse_expression(text))
    if file is not level.file and not all(_has_same(level.file, file, name) for name in names):
        raise StepError(file, call, f"`{text}` is not known here, where the port is made")
    return text


def _is_name(node: ast.expr) -> bool:
    is_chain = isinstance(node, (ast.Name, ast.Attribute)) and bool(get_root(node))
    return isinstance(node, ast.Constant) or is_chain


def _is_global(file: ProgramFile, name: str) -> bool:
    defined = any(getattr(one, "name", "") == name for one in file.tree.body)
    return defined or next(file.iter_assignments(name, file.tree), None) is not None or name in _BUILTINS


def _has_same(file: ProgramFile, other: ProgramFile, name: str) -> bool:
    """Tell whether two files import the same by a name."""
    found = [
        {
            (ast.dump(alias), getattr(one, "module", None))
            for one in each.tree.body
            if isinstance(one, (ast.Import, ast.ImportFrom))
            for alias in one.names
            if (alias.asname or alias.name) == name
        }
        for each in (file, other)
    ]
    return name in _BUILTINS or bool(found[0]) and found[0] == found[1]


def _find_among_attributes(program: Program, step: TrainingStep, level: _Level) -> PortPlace:
    """Find the method in which model and optimizer, both attributes of `self`, come together."""
    if "loader" in level.texts:
        raise level.refuse("loaders are made elsewhere")
    if not level.texts["model"].startswith("self."):
        raise level.refuse("the optimizer is an attribute, and the model is not")
    chains = []
    for key in ("model", "optimizer"):
        is_there = step.helper is not None and key == "model"
        file, use = (step.helper.file, step.call) if is_there and step.helper else (level.file, level.use)
        assert isinstance(use, ast.Call)
        found = list_bindings(program, file, use, parse_expression(level.texts[key]))
        end = found[0] if len(found) == 1 else None
        if not isinstance(end, Binding) or end.after is None:
            raise level.refuse(f"where `{level.texts[key]}` is assigned was not found")
        chains.append(_list_way(program, end.file, end.after))
    for file, function, first in chains[0]:
        for other, same, second in chains[1]:
            if function is same and file is other:
                _require_known(level, file)
                return _place_behind(file, first, second, level.texts)
    raise level.refuse("model and optimizer are made in methods that nothing calls together")


def _require_known(level: _Level, file: ProgramFile) -> None:
    """Raise StepError for a name of the loss that the function of the step keeps to itself."""
    for key, text in level.texts.items():
        root = _get_root(text) if text.isidentifier() or "." in text else "self"
        is_own = root in list_parameters(level.scope) or level.assigns(root)
        if root != "self" and (is_own or file is not level.file and not _has_same(level.file, file, root)):
            raise level.refuse(f"`{key}` is not known where the port is made")


def _list_way(
    program: Program, file: ProgramFile, statement: ast.stmt
) -> List[Tuple[ProgramFile, Optional[Function], ast.stmt]]:
    """List the functions that lead to a statement, each with its own statement on the way."""
    way = [(file, file.find_function(statement), statement)]
    for file, function, _statement in way:
        for caller, call in program.iter_callers(file, function) if function is not None else ():
            above = caller.find_function(call)
            is_known = any(one is above for _file, one, _ in way)
            if caller.find_class(call) is not None and not is_known and len(way) < _DEEPEST:
                way.append((caller, above, caller.get_statement(call)))
    return way


def _place_behind(file: ProgramFile, first: ast.stmt, second: ast.stmt, texts: Dict[str, str]) -> PortPlace:
    early, late = sorted((first, second), key=lambda one: one.lineno)
    if any(late is one for one in ast.walk(early)):
        early, late = late, early
    shared = file.measure_shared(early, late)
    if early is not late and shared < len(file.list_blocks(early)):
        raise StepError(file, early, "model and optimizer are made in different branches")
    is_partial = shared < len(file.list_blocks(late)) and isinstance(next(file.iter_above(late)), ast.If)
    return PortPlace(file, late, texts, is_before=False, is_partial=is_partial)
