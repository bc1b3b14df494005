"""Files that would train as soon as they are imported, found by their text, so that nobody's training is started."""

from __future__ import annotations

import ast
from typing import Dict, Iterator, List, Optional, Set, Union

from porting.source.imports import is_main_guard

__all__ = ["find_training_on_import"]

_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


def find_training_on_import(tree: ast.Module) -> Optional[int]:
    r"""Find the line of a backward pass that an import of a file comes to; None where there is none.

    What stands under `if __name__ == "__main__":` is not run by an import. Calls are followed into the functions of
    the file, by their names.

    >>> find_training_on_import(ast.parse("def main():\n    loss.backward()\nmain()"))
    2
    >>> find_training_on_import(ast.parse("def main():\n    loss.backward()")) is None
    True
    """
    functions: Dict[str, _Function] = {node.name: node for node in tree.body if isinstance(node, _FUNCTIONS)}
    waiting: List[ast.AST] = [node for node in tree.body if not (isinstance(node, ast.If) and is_main_guard(node.test))]
    followed: Set[str] = set()
    while waiting:
        for call in _iter_calls(waiting.pop()):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
                return call.lineno
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in functions and name not in followed:
                followed.add(name)
                waiting.extend(functions[name].body)
    return None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _iter_calls(node: ast.AST) -> Iterator[ast.Call]:
    """List the calls that running a statement makes by itself: none of a function that it only defines."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, (*_FUNCTIONS, ast.Lambda)):
            if isinstance(part, ast.Call):
                yield part
            waiting.extend(ast.iter_child_nodes(part))
