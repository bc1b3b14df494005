"""`NameScope` and `Attribute`: how operators are called in the compiled graph, and what else is noted with them."""

from __future__ import annotations

from typing import Any, Dict, List

from .._options_impl import require
from .graph_scopes import GraphScopes, change_scopes

__all__ = ["Attribute", "NameScope"]


class NameScope:
    """Put `name/` in front of the names of the operators inside the context; AssertionError for another type.

    >>> with NameScope("encoder"):
    ...     pass
    """

    def __init__(self, name: str) -> None:
        require(isinstance(name, str), "Parameter to NameScope must be a string")
        self.name = name

    def __enter__(self) -> None:
        change_scopes(GraphScopes.push_name_scope, self.name)

    def __exit__(self, *_exception: Any) -> None:
        change_scopes(GraphScopes.pop_name_scope)


class Attribute:
    """Give the operators inside the context attributes; those of contexts around it hold too.

    >>> with Attribute(__outline={"layer": "embedding"}):
    ...     Attribute._current_attrs
    {'__outline': {'layer': 'embedding'}}
    >>> Attribute._current_attrs
    {}
    """

    # What holds for the operators that come next.
    _current_attrs: Dict[str, Dict[str, Any]] = {}

    def __init__(self, **attributes: Dict[str, Any]) -> None:
        self._attributes = attributes
        # a list, because one object may be entered again inside itself
        self._before: List[Dict[str, Dict[str, Any]]] = []

    def __enter__(self) -> None:
        before = Attribute._current_attrs
        merged = {name: dict(entries) for name, entries in before.items()}
        for name, entries in self._attributes.items():
            merged.setdefault(name, {}).update(entries)
        self._before.append(before)
        _exchange_attributes(before, merged)

    def __exit__(self, *_exception: Any) -> None:
        _exchange_attributes(Attribute._current_attrs, self._before.pop())


def _exchange_attributes(before: Dict[str, Dict[str, Any]], after: Dict[str, Dict[str, Any]]) -> None:
    """Make `after` the attributes that hold, and tell the trace that is going on what changes."""
    Attribute._current_attrs = after
    for name, entries in before.items():
        for key in entries:
            if key not in after.get(name, {}):
                change_scopes(GraphScopes.clear_attribute, name, key)
    for name, entries in after.items():
        for key, value in entries.items():
            if before.get(name, {}).get(key) != value:
                change_scopes(GraphScopes.set_attribute, name, key, value)
