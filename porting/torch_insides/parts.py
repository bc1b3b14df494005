"""Find parts of torch that are not public by their place, so that one that is gone costs what uses it and no more.

The other modules of this package name the parts, one subject each; nothing else in the product names any.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from operator import attrgetter
from typing import Any, Dict, List, NoReturn

import torch

from ..diagnostics import PortingError, Severity

__all__ = ["MissingPart", "Parts", "look_up", "make_missing_error", "make_stand_in"]

_NEEDED: Any = object()


class MissingPart(PortingError):  # noqa: N818 - it says what is missing
    """E013: what was asked for needs a part that this torch lacks; the message names both."""


class Parts:
    """Private parts of torch that serve one purpose, and those of them that this torch lacks.

    `loses` says what is lost where one is missing, as a clause: "no step can be captured".
    """

    def __init__(self, loses: str) -> None:
        """Begin with no part."""
        self._loses = loses
        self.places: List[str] = []
        """Where each part was looked for."""
        self.losses: Dict[str, str] = {}
        """What is lost by each part that is missing, by the part's place."""
        self.needed: List[str] = []
        """Those of them that nothing stands for: all is lost that these parts are for."""

    def find(self, place: str, *, instead: object = _NEEDED, loses: str = "") -> Any:
        """Return the part at `place`, "module:attribute.attribute"; `instead` where there is none.

        `loses` says what `instead` does not do. Without `instead`, a part that is gone is a class of which each use
        is a MissingPart error; without `loses` too, all is lost that these parts are for.

        >>> parts = Parts("no numbers can be added")
        >>> parts.find("torch:add") is torch.add
        True
        >>> parts.find("torch:_add_numbers", instead=sum, loses="tensors are not added")
        <built-in function sum>
        >>> parts.losses
        {'torch:_add_numbers': 'tensors are not added'}
        """
        self.places.append(place)
        try:
            return look_up(place)
        except (ImportError, AttributeError):
            return self._replace(place, instead, loses)

    def reader(self, name: str, *, of: object, instead: object = _NEEDED, loses: str = "") -> Any:
        """Return a function that reads the attribute `name` of objects like the example `of`.

        Where they have none, the function that is returned is `instead`, or a MissingPart error as in `find`.
        """
        kind = of if isinstance(of, type) else type(of)
        place = f"{kind.__module__}:{kind.__qualname__}.{name}"
        self.places.append(place)
        return attrgetter(name) if has_part(of, name) else self._replace(place, instead, loses)

    def _replace(self, place: str, instead: object, loses: str) -> Any:
        self.losses[place] = loses or self._loses
        if instead is _NEEDED and not loses:
            self.needed.append(place)
        return make_stand_in(place, self.losses[place]) if instead is _NEEDED else instead

    def probe(self) -> str:
        """Return which parts this torch lacks, and what is lost by each; empty if it has them all."""
        return "; ".join(f"no `{write_place(place)}`: {loss}" for place, loss in self.losses.items())

    def require(self) -> None:
        """Raise MissingPart if one is missing that nothing stands for."""
        for place in self.needed:
            raise make_missing_error(place, self.losses[place])


def look_up(place: str) -> Any:
    """Return what is at `place`; ImportError or AttributeError where there is nothing.

    >>> look_up("torch:Tensor.add") is torch.Tensor.add
    True
    """
    module, _, path = place.partition(":")
    with warnings.catch_warnings():
        # what torch's modules say of each other is not for whoever asks
        warnings.simplefilter("ignore")
        found: Any = import_module(module)
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def has_part(example: object, name: str) -> bool:
    """Tell whether objects like `example` have the attribute `name`."""
    return hasattr(example, name)


def write_place(place: str) -> str:
    """Write a place as Python would.

    >>> write_place("torch._C:_nn._parse_to")
    'torch._C._nn._parse_to'
    """
    return place.replace(":", ".").rstrip(".")


def make_stand_in(place: str, loss: str) -> Any:
    """Return a class for the part that is missing at `place`: it can be derived from and compared, but not used."""

    def refuse(_kind: object, *args: Any, **_kwargs: object) -> NoReturn:
        # what Python itself looks for, as to derive a class
        if args and str(args[0]).startswith("__"):
            raise AttributeError(args[0])
        raise make_missing_error(place, loss)

    kind = type("_Missing", (type,), {"__call__": refuse, "__getattr__": refuse})
    # a derived class may call the constructor by its name
    attributes = {"__doc__": f"Stands in for `{place}`, which this torch lacks.", "__init__": refuse}
    return kind("MissingPartOfTorch", (), attributes)


def make_missing_error(place: str, loss: str) -> MissingPart:
    """Return the error E013 about the part at `place`, with what is lost."""
    return MissingPart.of(
        "E013",
        message=f"torch {torch.__version__} has no `{write_place(place)}`: {loss}",
        help="use a torch that was tested: `porting doctor` names them",
        severity=Severity.ERROR,
    )
