"""Compile functions of libraries anew from their source, with a few lines changed.

`Remedies` makes the edits of a `Patch` with it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import CellType, CodeType, FunctionType
from typing import Any, Callable, Iterable, Optional, Tuple

from porting.remedies.entries import Edit

__all__ = ["EditMismatchError", "edit_function"]


class EditMismatchError(Exception):
    """The source of a function is not the one that an edit was made for."""


def edit_function(function: Callable[..., Any], edits: Tuple[Edit, ...]) -> Callable[..., Any]:
    """Return a copy of `function` with `edits` made in its source; globals, defaults and closure are the original's.

    The copy keeps file and lines, so that messages point into the library's own source. It is made once for each
    function. Raises EditMismatchError when a text that is to be replaced is not there, or not as often as it should be.
    """
    original: Any = inspect.unwrap(function)
    if not isinstance(original, FunctionType):
        raise EditMismatchError(f"`{function!r:.80}` is not written in Python")
    made = FunctionType(
        _compile_edited(original, edits),
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    made.__kwdefaults__ = original.__kwdefaults__
    return functools.wraps(original)(_rewrap(function, original, made))


def _rewrap(function: Any, original: FunctionType, made: FunctionType) -> Any:
    """Put the decorators of `function` around `made`: the functions in whose closure the original is, copied."""
    if function is original:
        return made
    if not isinstance(function, FunctionType):
        raise EditMismatchError(f"`{function!r:.80}` is decorated by something that is no function")
    inner = function.__wrapped__  # type: ignore[attr-defined]
    replaced = _rewrap(inner, original, made)
    cells = function.__closure__ or ()
    if not any(_content(cell) is inner for cell in cells):
        raise EditMismatchError(f"the decorator of `{original.__qualname__}` does not keep it in its closure")
    closure = tuple(CellType(replaced) if _content(cell) is inner else cell for cell in cells)
    copied = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.wraps(function)(copied)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


@functools.lru_cache(maxsize=None)
def _compile_edited(function: FunctionType, edits: Tuple[Edit, ...]) -> CodeType:
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or function.__code__.co_filename
    except (OSError, TypeError) as error:
        raise EditMismatchError(f"the source of `{function.__qualname__}` is not there: {error}") from error
    source = "".join(lines)
    for edit in edits:
        found = source.count(edit.old)
        if found != edit.count:
            name, text = function.__qualname__, edit.old.strip()
            raise EditMismatchError(f"`{name}` has `{text:.60}` {found} times, not {edit.count}")
        source = source.replace(edit.old, edit.new)
    tree = ast.parse(textwrap.dedent(source))
    definition: Any = tree.body[0]
    definition.decorator_list.clear()
    ast.increment_lineno(tree, first - 1)
    _indent(tree, len(lines[0]) - len(lines[0].lstrip()))
    # free variables, as `__class__` of `super()`, are found where the definition is inside a function that has them
    if function.__code__.co_freevars:
        tree = _enclose(definition, function.__code__.co_freevars)
    code = compile(tree, file, "exec")
    found_code = _find_code(code.co_consts, function.__name__)
    if found_code is None or found_code.co_freevars != function.__code__.co_freevars:
        raise EditMismatchError(f"`{function.__qualname__}` uses other outer variables after the edit")
    return found_code


def _indent(tree: ast.Module, columns: int) -> None:
    """Move all columns to where they are in the file."""
    for node in ast.walk(tree):
        for name in ("col_offset", "end_col_offset"):
            if hasattr(node, name):
                setattr(node, name, getattr(node, name) + columns)


def _enclose(definition: Any, names: Iterable[str]) -> ast.Module:
    """Put a definition into a function that has the variables `names`."""
    assignments = "".join(f"    {name} = None\n" for name in names)
    tree = ast.parse(f"def enclosing():\n{assignments}    pass\n")
    outer: Any = tree.body[0]
    outer.body.append(definition)
    return ast.fix_missing_locations(tree)


def _find_code(constants: Iterable[Any], name: str) -> Optional[CodeType]:
    for constant in constants:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                return constant
            inner = _find_code(constant.co_consts, name)
            if inner is not None:
                return inner
    return None
