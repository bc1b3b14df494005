"""Find where a port is made: where model and optimizer exist under a name, before the loop that calls the model.

From the function of the training step it is climbed through the callers, in whose words the names of the step are then
said. Attributes of `self` meet in the method that makes, or lets make, both.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Tuple

from porting.convert.bindings import Binding, find_argument, list_bindings
from porting.convert.names import collect_reads, get_root, substitute
from porting.convert.program import Program
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import Function, ProgramFile

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


@dataclass(frozen=True, eq=False)
class _Level:
    """A function on the way up, the node in it that leads to the step, and what names are called there."""

    file: ProgramFile
    use: ast.AST
    texts: Dict[str, str]

    @property
    def scope(self) -> ast.AST:
        return self.file.find_function(self.use) or self.file.tree


def find_place(program: Program, step: TrainingStep) -> PortPlace:
    """Find the place of the port of a step's model; raises StepError where there is none."""
    texts = {"model": step.model, "optimizer": ast.unparse(step.optimizer)}
    texts.update({name: name for name in step.constants})
    if step.max_norm is not None:
        texts.update({name: name for name in collect_reads(step.max_norm)})
    level = _Level(step.file, step.backward, texts)
    for _ in range(_DEEPEST):
        if level.texts["optimizer"].startswith("self."):
            return _find_among_attributes(program, step, level)
        if _assigns(level, get_root_of(level.texts["optimizer"])):
            return _settle(step, level)
        level = _climb(program, step, level)
    raise StepError(step.file, step.backward, "the optimizer is handed on through too many functions")


def get_root_of(text: str) -> str:
    """Return the name that an expression, as a text, belongs to."""
    return get_root(ast.parse(text, mode="eval").body)


def _assigns(level: _Level, name: str) -> bool:
    return bool(name) and next(level.file.iter_assignments(name, level.scope), None) is not None


def _settle(step: TrainingStep, level: _Level) -> PortPlace:
    """Place the port before the statement that leads to the step, behind all that assign its names."""
    file = level.file
    around = file.list_blocks(file.get_statement(level.use))
    depths: Dict[str, int] = {}
    for key in ("model", "optimizer"):
        root = get_root_of(level.texts[key])
        if root == "self":
            continue
        found = []
        for one in file.iter_assignments(root, level.scope):
            blocks = [id(block) for block, _ in file.list_blocks(one)]
            shared = [n for n, (block, _) in enumerate(around) if id(block) in blocks]
            if shared and one.lineno < getattr(around[shared[-1]][0][around[shared[-1]][1]], "lineno", 0):
                found.append(shared[-1])
        if found:
            depths[key] = max(found)
        elif isinstance(level.scope, ast.Module) or key == "optimizer":
            raise StepError(file, level.use, f"`{level.texts[key]}` is not assigned before the loop that trains")
        elif root not in _list_parameters(level.scope):
            raise StepError(file, level.use, f"`{level.texts[key]}` is a global that a function would have to assign")
    depth = depths["optimizer"]
    block, number = around[depth]
    if depths.get("model", depth) < depth and _is_in_loop(file, block[number]):
        raise StepError(file, block[number], "the optimizer is made anew for the same model")
    depth = max(depths.values())
    block, number = around[depth]
    return PortPlace(file, block[number], level.texts)


def _is_in_loop(file: ProgramFile, node: ast.AST) -> bool:
    function = file.find_function(node)
    for above in file.iter_above(node):
        if above is function:
            return False
        if isinstance(above, (ast.For, ast.While)):
            return True
    return False


def _list_parameters(scope: ast.AST) -> List[str]:
    return [one.arg for one in scope.args.args + scope.args.kwonlyargs] if isinstance(scope, ast.FunctionDef) else []


def _climb(program: Program, step: TrainingStep, level: _Level) -> _Level:
    """Go to the caller of a level's function, and say the names in its words."""
    function = level.scope
    if not isinstance(function, ast.FunctionDef):
        raise StepError(level.file, level.use, f"nothing assigns `{level.texts['optimizer']}`")
    callers = list(program.iter_callers(level.file, function))
    if len({(id(file), id(file.find_function(call))) for file, call in callers}) != 1:
        raise StepError(level.file, function, f"`{function.name}` is called from {len(callers)} places, not from one")
    file, call = callers[0]
    texts = {key: _say_above(step, level, function, file, call, text) for key, text in level.texts.items()}
    if any(_get_given(function, one, text) != _get_given(function, call, text) for _, one in callers for text in texts):
        raise StepError(file, callers[1][1], f"`{function.name}` is called with several models")
    return _Level(file, call, texts)


def _get_given(function: Function, call: ast.Call, name: str) -> str:
    given = find_argument(function, call, name)
    return "" if given is None else ast.unparse(given)


def _say_above(
    step: TrainingStep, level: _Level, function: ast.FunctionDef, file: ProgramFile, call: ast.Call, text: str
) -> str:
    """Say an expression of a function in the words of its caller."""
    root = get_root_of(text)
    if root == "self":
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self":
            return text
        raise StepError(level.file, level.use, f"`{text}` has another name where `{function.name}` is called")
    if root in _list_parameters(function):
        given = find_argument(function, call, root) or _find_default(function, root)
        if given is None or not _is_name(given):
            raise StepError(file, call, f"`{root}` of `{function.name}` is given by a value without a name")
        return substitute(ast.parse(text, mode="eval").body, [root], [ast.unparse(given)])[0]
    own = list(level.file.iter_assignments(root, function))
    if own:
        value = getattr(own[0], "value", None)
        inner = collect_reads(value) if value is not None else {""}
        is_fixed = (
            len(own) == 1 and isinstance(own[0], ast.Assign) and all(_is_global(level.file, one) for one in inner)
        )
        if value is None or not is_fixed or text != root:
            raise StepError(level.file, own[0], f"`{root}` exists in `{function.name}` alone")
        text = ast.unparse(value)
    names = collect_reads(ast.parse(text, mode="eval"))
    if file is not level.file and not all(_has_same(level.file, file, name) for name in names):
        raise StepError(file, call, f"`{text}` is not known here, where the port is made")
    return text


def _is_name(node: ast.expr) -> bool:
    is_chain = isinstance(node, (ast.Name, ast.Attribute)) and bool(get_root(node))
    return isinstance(node, ast.Constant) or is_chain


def _find_default(function: ast.FunctionDef, name: str) -> Optional[ast.expr]:
    names = [one.arg for one in function.args.args]
    defaults = dict(zip(names[::-1], function.args.defaults[::-1]))
    return defaults.get(name)


def _is_global(file: ProgramFile, name: str) -> bool:
    defined = any(getattr(one, "name", "") == name for one in file.tree.body)
    return defined or next(file.iter_assignments(name, file.tree), None) is not None or name in _BUILTINS


def _has_same(file: ProgramFile, other: ProgramFile, name: str) -> bool:
    """Tell whether two files import the same by a name."""
    found = [
        {
            ast.dump(alias) + getattr(one, "module", "")
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
    if not level.texts["model"].startswith("self."):
        raise StepError(level.file, level.use, "the optimizer is an attribute, and the model is not")
    chains = []
    for key in ("model", "optimizer"):
        value = ast.parse(level.texts[key], mode="eval").body
        is_there = step.helper is not None and key == "model"
        file, use = (step.helper.file, step.call) if is_there and step.helper else (level.file, level.use)
        assert isinstance(use, ast.Call)
        found = list_bindings(program, file, use, value)
        ends = [one for one in found if isinstance(one, Binding) and one.after is not None]
        if len(ends) != 1 or len(found) != 1:
            raise StepError(level.file, level.use, f"where `{level.texts[key]}` is assigned was not found")
        assert ends[0].after is not None
        chains.append(_list_way(program, ends[0].file, ends[0].after))
    for file, function, first in chains[0]:
        for other, same, second in chains[1]:
            if function is same and file is other:
                _require_known(step, level, file)
                return _place_behind(step, file, first, second, level.texts)
    raise StepError(level.file, level.use, "model and optimizer are made in methods that nothing calls together")


def _require_known(step: TrainingStep, level: _Level, file: ProgramFile) -> None:
    """Raise StepError for a name of the loss that the function of the step keeps to itself."""
    for key, text in level.texts.items():
        root = get_root_of(text) if text.isidentifier() or "." in text else "self"
        is_own = root in _list_parameters(level.scope) or _assigns(level, root)
        if root != "self" and (is_own or file is not level.file and not _has_same(level.file, file, root)):
            raise StepError(level.file, level.use, f"`{key}` is not known where the port is made")


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


def _place_behind(
    step: TrainingStep, file: ProgramFile, first: ast.stmt, second: ast.stmt, texts: Dict[str, str]
) -> PortPlace:
    early, late = sorted((first, second), key=lambda one: one.lineno)
    if any(late is one for one in ast.walk(early)):
        early, late = late, early
    around = file.list_blocks(late)
    blocks = {id(block) for block, _ in file.list_blocks(early)}
    if early is not late and id(file.list_blocks(early)[-1][0]) not in {id(block) for block, _ in around}:
        raise StepError(file, early, "model and optimizer are made in different branches")
    is_partial = id(around[-1][0]) not in blocks
    place = PortPlace(file, late, texts, is_before=False)
    return replace(place, is_partial=is_partial and isinstance(_get_above(file, late), ast.If))


def _get_above(file: ProgramFile, statement: ast.stmt) -> ast.AST:
    return next(file.iter_above(statement))
