"""PopTorch 3.4's public surface as data (`surface.json`), entry by entry, and what the simulator has of each.

The data lists enumerations, functions, values, classes with their bases and members, errors for tests, operators of
``torch.ops.poptorch``, and names of the compiled part that only PopTorch's own front end uses (``replaced``). A
signature is given where the names of the parameters are known.
"""

from __future__ import annotations

import builtins
import enum
import importlib
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, List, Optional

import torch

import porting.simulator as simulator
from porting.simulator.errors import NotSimulatedError

SURFACE = json.loads(Path(__file__).with_name("surface.json").read_text("utf-8"))


@dataclass(frozen=True)
class Entry:
    """A name of PopTorch: its dotted path, what kind of thing it is, and its signature or value where one is known."""

    path: str
    kind: str
    expected: Any = None


def entries() -> List[Entry]:
    """List everything that the data names, apart from what is internal to PopTorch's front end."""
    found = [
        Entry(f"{name}.{member}", "member of an enumeration", value)
        for name, members in SURFACE["enums"].items()
        for member, value in members.items()
    ]
    for kind in ("functions", "values"):
        for module, names in SURFACE[kind].items():
            found += [Entry(f"{module}.{name}", kind[:-1], expected) for name, expected in names.items()]
    for path, facts in SURFACE["classes"].items():
        found.append(Entry(path, "class", facts["signature"]))
        found += [Entry(f"{path}.{name}", "member of a class", expected) for name, expected in facts["members"].items()]
    found += [Entry(f"torch.ops.poptorch.{name}", "operator") for name in SURFACE["operators"]]
    return found


def find(path: str) -> Any:
    """Return the thing behind a dotted path, descriptors as they are; AttributeError where there is none."""
    root, *names = path.split(".")
    if path.startswith("torch.ops."):
        return getattr(torch.ops.poptorch, names[-1])
    if not names:
        return getattr(builtins, root)
    found: Any = simulator if root == "poptorch" else importlib.import_module(root)
    for name in names:
        if inspect.isclass(found) and not issubclass(found, enum.Enum):
            found = inspect.getattr_static(found, name)
        else:
            found = getattr(found, name)
    return found


def difference(entry: Entry) -> Optional[str]:
    """Say how the simulator differs from an entry: None for equal, ``not simulated`` for a refusal, or a sentence."""
    try:
        found = find(entry.path)
    except NotSimulatedError:
        return "not simulated"
    except AttributeError:
        return "missing"
    if entry.kind == "member of an enumeration":
        return None if found.value == entry.expected else f"is {found.value}, not {entry.expected}"
    if entry.expected is None:
        return None
    if entry.kind == "value":
        return None if found == entry.expected else f"is {found!r}, not {entry.expected!r}"
    actual = signature_of(found)
    return None if actual == entry.expected else f"is {actual}, not {entry.expected}"


def missing_bases() -> Iterator[str]:
    """List the classes that lack a base of PopTorch's, as in ``poptorch.Block: torch.nn.Module``."""
    for path, facts in SURFACE["classes"].items():
        for base in facts["bases"]:
            try:
                if not issubclass(find(path), find(base)):
                    yield f"{path}: {base}"
            except NotSimulatedError:
                continue


def signature_of(found: Any) -> str:
    """Return the parameters and their defaults as text, or ``property`` or ``value`` for what is not called."""
    if isinstance(found, property):
        return "property"
    if isinstance(found, (staticmethod, classmethod)):
        drops_first, function = isinstance(found, classmethod), found.__func__
    elif inspect.isfunction(found):
        # a function of a class is still unbound here
        drops_first, function = next(iter(inspect.signature(found).parameters), "") == "self", found
    elif callable(found):
        drops_first, function = False, found
    else:
        return "value"
    parameters = list(inspect.signature(function).parameters.values())
    return f"({', '.join(_text(parameter) for parameter in parameters[drops_first:])})"


def _text(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return stars + parameter.name
    default = parameter.default
    return f"{parameter.name}={default if isinstance(default, enum.Enum) else repr(default)}"
