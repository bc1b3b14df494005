"""Names of torch that the package uses, and which of them torch 2.0 has: a check that needs no torch 2.0.

    python -m tests.hardware.torch_names     on torch 2.0.1: write TABLE again

TABLE lists, for every module and class of torch that the sources name, what it has in torch 2.0.1.
"""

from __future__ import annotations

import ast
import importlib
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set

import torch

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "porting"
TABLE = Path(__file__).with_name("torch_2_0_names.txt")

# packages and modules for the simulator, which needs a newer torch
CAPTURING = (
    "analysis",
    "capture",
    "check/batch_look.py",
    "check/freeze_search.py",
    "check/model_check.py",
    "check/index_ranges.py",
    "check/step_capture.py",
    "engines",
    "executables",
    "exports",
    "planning",
    "simulator",
    "verify/fault_location",
)

# classes whose members are used of objects, where the sources do not name the class
OF_OBJECTS = (
    "torch.Generator",
    "torch.Tensor",
    "torch.device",
    "torch.nn.Module",
    "torch.optim.Optimizer",
    "torch.optim.lr_scheduler.LRScheduler",
    "torch.utils.data.DataLoader",
)


class Use(NamedTuple):
    """A name that is read in a file: `torch.nn.Linear`, or a member of an unknown object, `.named_modules`."""

    file: str
    line: int
    name: str


def sources() -> List[Path]:
    """List the modules that run where the vendor's PopTorch and torch 2.0 are."""
    capturing = tuple(str(PACKAGE / part) for part in CAPTURING)
    return sorted(path for path in PACKAGE.rglob("*.py") if not str(path).startswith(capturing))


def uses_in(path: Path) -> List[Use]:
    """List the names of torch, and all members, that a module reads when it is loaded or run."""
    reader = _Reader()
    reader.visit(ast.parse(path.read_text("utf-8")))
    file = str(path.relative_to(ROOT)) if ROOT in path.parents else path.name
    return [Use(file, line, name) for line, name in reader.found]


class _Reader(ast.NodeVisitor):
    """Follows imports of torch to the places where what they bring is used; annotations are never evaluated."""

    def __init__(self) -> None:
        self.found: List[Any] = []
        self._names: Dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802 - the names are those of ast
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.found.append((node.lineno, alias.name))
                self._names[alias.asname or "torch"] = alias.name if alias.asname else "torch"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        if not node.level and str(node.module).split(".")[0] == "torch":
            for alias in node.names:
                self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                self.found.append((node.lineno, f"{node.module}.{alias.name}"))

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        name = self._resolve(node)
        if name is not None:
            self.found.append((node.lineno, name))
            return
        self.found.append((node.lineno, f".{node.attr}"))
        self.visit(node.value)

    def _resolve(self, node: ast.expr) -> Optional[str]:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            return None if owner is None else f"{owner}.{node.attr}"
        return None

    def visit_If(self, node: ast.If) -> None:  # noqa: N802
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Leave the annotation out."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: N802
        node.returns = None
        self.generic_visit(node)


@lru_cache(maxsize=None)
def read_table() -> Dict[str, FrozenSet[str]]:
    """Read the names of torch 2.0.1 by the module or class that they belong to."""
    table: Dict[str, FrozenSet[str]] = {}
    for entry in TABLE.read_text("utf-8").split("\n\n"):
        owner, _colon, names = entry.partition(":")
        table[owner.strip()] = frozenset(names.split())
    return table


def missing_part(name: str) -> Optional[str]:
    """Return the shortest part of a name of torch that torch 2.0 lacks, or that TABLE says nothing of; else None.

    >>> missing_part("torch.nn.Module.set_submodule"), missing_part("torch.nn.Module.get_submodule")
    ('torch.nn.Module.set_submodule', None)
    """
    table, parts = read_table(), name.split(".")
    for end in range(1, len(parts)):
        owner, member = ".".join(parts[:end]), parts[end]
        if owner not in table:
            return owner if _is_owner(owner) else None
        if member.startswith("__"):  # what Python asks of every class is not in the table
            return None
        if member not in table[owner] and f"{owner}.{member}" not in table:
            return f"{owner}.{member}"
    return None


def members_since() -> Set[str]:
    """Return what objects of the installed torch have that no object has in torch 2.0."""
    table = read_table()
    before = {name for owner in OF_OBJECTS for name in table[owner]}
    return {name for owner in OF_OBJECTS for name in _names_of(_find(owner))} - before


def _is_owner(name: str) -> bool:
    found = _find(name)
    return isinstance(found, (type, type(torch)))


def _find(name: str) -> Any:
    """Return the object of the installed torch, or None; modules are imported where they have to be."""
    found: Any = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        found = getattr(found, parts[end - 1], None) if end > 1 else torch
        if found is None:
            try:
                found = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return None
    return found


def _names_of(owner: Any) -> Iterator[str]:
    return (name for name in dir(owner) if not name.startswith("__"))


def make_table() -> str:
    """Write what the installed torch has of every module and class that the sources name."""
    owners = set(OF_OBJECTS)
    for path in sources():
        for use in uses_in(path):
            parts = use.name.split(".")
            if parts[0] == "torch":
                owners.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    entries = []
    for owner in sorted(filter(_is_owner, owners)):
        lines = textwrap.wrap(" ".join(sorted(_names_of(_find(owner)))), 116, break_long_words=False)
        entries.append("\n".join([f"{owner}:", *(f"    {line}" for line in lines)]))
    return "\n\n".join(entries) + "\n"


if __name__ == "__main__":
    assert torch.__version__.startswith("2.0.1"), f"this is torch {torch.__version__}"
    TABLE.write_text(make_table(), encoding="utf-8")
