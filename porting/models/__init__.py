"""Offer reference models that benchmarks and recipes share, one module a family: `build("mlp:mushrooms")`.

Every family has the names of `Family`: configurations by name, the model, an example batch and the loss. Families, and
torch with them, are loaded on first use.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Mapping, cast

from porting.aliases import stand_for
from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from torch import nn

    from porting.models.cnn import make_cnn as make_cnn
    from porting.models.family import Family as Family
    from porting.models.mlp import make_mlp as make_mlp

if __name__ == "models":  # by the link at the top of a clone
    stand_for(__name__, "porting.models")

_LATE_NAMES, __getattr__, __dir__ = read_late_names(globals())

__all__ = sorted(["FAMILIES", "build", "load", *_LATE_NAMES])


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
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; there are {', '.join(map(repr, FAMILIES))}")
    return cast("Family", importlib.import_module(f".{family}", __name__))


def _read_families() -> Mapping[str, str]:
    """Read the first lines of the families beside this module: files, and folders for large ones."""
    folder = Path(__file__).parent
    files = {path.stem: path for path in folder.glob("*.py") if path.stem not in ("__init__", "family")}
    files.update({path.parent.name: path for path in folder.glob("*/__init__.py")})
    found = {}
    for name, path in sorted(files.items()):
        with open(path, encoding="utf-8") as file:
            found[name] = file.readline().strip().strip('"').rstrip(".")
    return MappingProxyType(found)


FAMILIES: Mapping[str, str] = _read_families()
"""The first line of each family's module, by the family's name; read without loading the modules."""
