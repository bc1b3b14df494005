"""Load a package's public names on first use (PEP 562); they are listed once, as its imports for type checkers."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

__all__ = ["read_late_names"]

_FOR_TYPE_CHECKERS = ast.dump(ast.parse("TYPE_CHECKING", mode="eval").body)


def read_late_names(namespace: Dict[str, Any]) -> Tuple[List[str], Callable[[str], Any], Callable[[], List[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of the package whose `globals()` are `namespace`.

    They follow from its absolute imports below `if TYPE_CHECKING:`. As for type checkers, a name that is imported `as`
    itself is public. Others can be read too, but are not listed.
    """
    package = namespace["__name__"]
    tree = ast.parse(Path(namespace["__file__"]).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.dump(node.test) == _FOR_TYPE_CHECKERS]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    public = sorted(alias.name for node in imports for alias in node.names if alias.asname == alias.name)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(homes[name]), name)
        if name in public:
            namespace[name] = value
        return value

    return public, load, lambda: sorted({*namespace, *public})
