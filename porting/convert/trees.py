"""Read a program's files as syntax trees with a way up, so that a conversion knows what a call stands in.

Edits are planned on Python's trees, which the walk has read; LibCST's carry them out (see `editing`).
"""

from __future__ import annotations

import ast
import itertools
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from porting.source.files import Unit

__all__ = [
    "FUNCTIONS",
    "LOOPS",
    "Function",
    "ProgramFile",
    "find_argument",
    "find_default",
    "find_keyword",
    "is_main_guard",
    "iter_blocks",
    "list_bases",
    "list_parameters",
    "list_targets",
    "write_node",
]

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class ProgramFile:
    """A file of the program: its tree, and for each node what it stands in."""

    def __init__(self, unit: Unit, module_name: str) -> None:
        """Take a unit that was read; `module_name` is the qualified name of its module."""
        self.unit = unit
        self.path = unit.file
        self.module_name = module_name
        self._parents: Dict[ast.AST, ast.AST] = {
            inner: node for node in ast.walk(unit.tree) for inner in ast.iter_child_nodes(node)
        }

    @property
    def tree(self) -> ast.Module:
        """The syntax tree, whose nodes are those of the facts."""
        return self.unit.tree

    def holds(self, node: ast.AST) -> bool:
        """Tell whether a node is one of this file."""
        return node in self._parents

    def iter_above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Iterate over what a node stands in, from the inside out."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def find_function(self, node: ast.AST) -> Optional[Function]:
        """Find the function that a node stands in; None at the top level and in a lambda."""
        for above in self.iter_above(node):
            if isinstance(above, (ast.Lambda, *FUNCTIONS)):
                return None if isinstance(above, ast.Lambda) else above
        return None

    def find_scope(self, node: ast.AST) -> ast.AST:
        """Find the function that a node stands in, or the top level of the file."""
        return self.find_function(node) or self.tree

    def find_loop(self, node: ast.AST) -> Optional[ast.AST]:
        """Find the innermost loop around a node in its function."""
        function = self.find_function(node)
        around = itertools.takewhile(lambda one: one is not function, self.iter_above(node))
        return next((one for one in around if isinstance(one, LOOPS)), None)

    def find_class(self, node: ast.AST) -> Optional[ast.ClassDef]:
        """Find the class whose method a node stands in."""
        return next((above for above in self.iter_above(node) if isinstance(above, ast.ClassDef)), None)

    def get_statement(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that a node is or stands in."""
        return next(one for one in (node, *self.iter_above(node)) if isinstance(one, ast.stmt))

    def name_function(self, function: Function) -> str:
        """Name a function as facts do: `train.Trainer.fit`."""
        names = [one.name for one in self.iter_above(function) if isinstance(one, (ast.ClassDef, *FUNCTIONS))]
        return ".".join([self.module_name, *reversed(names), function.name])

    def list_blocks(self, statement: ast.AST) -> List[Tuple[Sequence[ast.stmt], int]]:
        """List the blocks around a statement from the outside in, each with the place in it that leads there.

        Only those of its function, or of the top level, are listed; bodies of classes do not count as a scope's.
        """
        found: List[Tuple[Sequence[ast.stmt], int]] = []
        inner: ast.AST = statement
        for above in self.iter_above(statement):
            for block in iter_blocks(above):
                place = next((number for number, one in enumerate(block) if one is inner), None)
                if place is not None:
                    found.append((block, place))
            if isinstance(above, (*FUNCTIONS, ast.ClassDef)):
                break
            inner = above
        return found[::-1]

    def measure_shared(self, statement: ast.AST, other: ast.AST) -> int:
        """Count the blocks around a statement that another one of its scope stands in, too."""
        blocks = [{id(block) for block, _number in self.list_blocks(one)} for one in (statement, other)]
        return len(blocks[0] & blocks[1])

    def find_whole(self, statement: ast.stmt) -> ast.stmt:
        """Find the outermost statement around one in its scope, within main guards and `with` blocks."""
        for block, number in self.list_blocks(statement):
            one = block[number]
            if not (isinstance(one, (ast.With, ast.AsyncWith)) or is_main_guard(one)):
                return one
        return statement

    def iter_assignments(self, name: str, scope: ast.AST) -> Iterator[ast.stmt]:
        """Iterate over the statements of a scope, not of functions in it, that assign to a name or `self.name`."""
        waiting: List[ast.AST] = [scope]
        while waiting:
            node = waiting.pop(0)
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                    continue
                if isinstance(inner, ast.stmt) and name in list_targets(inner):
                    yield inner
                waiting.append(inner)

    def find_call(self, line: int, column: int, method: str = "") -> Optional[ast.Call]:
        """Find the innermost call that begins at a place; with column -1, the only call of a line.

        Of several, as in `scaler.scale(loss).backward()`, it is that of `method`, if there is one.
        """
        calls = [one for one in self._parents if isinstance(one, ast.Call) and one.lineno == line]
        if column < 0:
            return calls[0] if len(calls) == 1 else None
        found = [one for one in calls if (self.unit.place_of(one).column or 0) == column + 1]
        named = [one for one in found if method and getattr(one.func, "attr", "") == method]
        return min(named or found, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0), default=None)

    def text_of(self, node: ast.AST) -> str:
        """Return the source of an expression, in one line."""
        return self.unit.text_of(node) or write_node(node)


def is_main_guard(statement: ast.stmt) -> bool:
    """Tell whether what stands in a statement is run where its file is started, and not where it is imported."""
    return isinstance(statement, ast.If) and "__name__" in write_node(statement.test)


def list_parameters(scope: ast.AST) -> List[str]:
    """List the names that a function gets by place or name; of another scope there are none."""
    if not isinstance(scope, FUNCTIONS):
        return []
    return [one.arg for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)]


def find_keyword(call: ast.Call, name: str) -> Optional[ast.expr]:
    """Find what a call gives by a name."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def find_argument(function: Function, call: ast.Call, name: str) -> Optional[ast.expr]:
    """Find what a call gives for a parameter of a function; None where that is not said by name or place."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    place = names.index(name) - (names[0] in ("self", "cls")) if name in names else -1
    given = call.args[: place + 1]
    is_placed = place >= 0 and len(given) > place and not any(isinstance(one, ast.Starred) for one in given)
    return find_keyword(call, name) or (given[place] if is_placed else None)


def find_default(function: Function, name: str) -> Optional[ast.expr]:
    """Find what a parameter is where a call does not give it."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    found = dict(zip([one.arg for one in arguments.kwonlyargs], arguments.kw_defaults))
    found.update(zip(names[::-1], arguments.defaults[::-1]))
    return found.get(name)


def list_bases(node: ast.ClassDef) -> List[str]:
    """List the last words of the bases of a class."""
    return [write_node(one).rpartition(".")[2] for one in node.bases]


def write_node(node: ast.AST) -> str:
    """Write an expression or a statement as Python, in one form whatever its source looks like."""
    return ast.unparse(node)  # novm - conversions want Python 3.9, as the simulator does


def list_targets(statement: ast.stmt) -> List[str]:
    """List what a statement assigns to, as source: names and attributes, also those in tuples."""
    targets: Iterable[ast.AST] = ()
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        targets = [statement.target]
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    flat = [one for target in targets for one in _iter_targets(target)]
    return [write_node(one) for one in flat if isinstance(one, (ast.Name, ast.Attribute))]


def _iter_targets(target: ast.AST) -> Iterator[ast.AST]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _iter_targets(one)
    elif isinstance(target, ast.Starred):
        yield from _iter_targets(target.value)
    else:
        yield target


def iter_blocks(node: ast.AST) -> Iterator[List[ast.stmt]]:
    """Iterate over the blocks of a statement, without those of its `except` clauses."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
