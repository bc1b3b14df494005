"""Reference models that benchmarks and recipes share, one module a family: `build("mlp:mushrooms")`.

Every family has the names of `Family`: configurations by name, the model, an example batch and the loss. Families, and
torch with them, are loaded when one is asked for.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, cast

from porting.aliases import stand_for

if TYPE_CHECKING:
    from torch import nn

    from .cnn import make_cnn
    from .family import Family
    from .mlp import make_mlp

if __name__ == "models":  # by the link at the top of a clone
    stand_for(__name__, "porting.models")

__all__ = ["FAMILIES", "Family", "build", "load", "make_cnn", "make_mlp"]

FAMILIES: Mapping[str, str]
"""What each family is, in one line, by its name; read from the modules without loading them."""

_NO_FAMILIES = ("__init__", "family")

_MODULES = {"Family": ".family", "make_cnn": ".cnn", "make_mlp": ".mlp"}


def build(name: str, **changes: Any) -> nn.Module:
    """Make a model by its name: `family`, or `family:variant`; `changes` are fields of the family's configuration.

    A name that does not exist is a ValueError that lists those that do.

    >>> build("mlp:mushrooms", sizes=(22, 5, 1))[0]
    Linear(in_features=22, out_features=5, bias=True)
    """
    family, _colon, variant = name.partition(":")
    made = load(family)
    return made.build(variant or made.DEFAULT, **changes)


def load(family: str) -> Family:
    """Load a family's module by its name; ValueError for one that does not exist.

    >>> sorted(load("mlp").VARIANTS)
    ['mnist', 'mnist_small', 'mushrooms']
    """
    known = _find_families()
    if family not in known:
        raise ValueError(f"there is no family {family!r}; there are {', '.join(map(repr, known))}")
    return cast("Family", importlib.import_module(f".{family}", __name__))


def _find_families() -> Mapping[str, str]:
    """Read the docstrings of the families beside this module: files, and folders for large ones."""
    folder = Path(__file__).parent
    files = {path.stem: path for path in folder.glob("*.py") if path.stem not in _NO_FAMILIES}
    files.update({path.parent.name: path for path in folder.glob("*/__init__.py")})
    found = {}
    for name, path in sorted(files.items()):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        found[name] = str(docstring).partition("\n")[0].rstrip(".")
    return MappingProxyType(found)


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name == "FAMILIES":
        value: Any = _find_families()
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
