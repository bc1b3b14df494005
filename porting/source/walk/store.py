"""The variables that a walk writes, with a journal of what a branch has written, so that branches part and join."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from porting.source.walk.values import UNKNOWN, Scope, Value, join

__all__ = ["Store", "Writes"]

_Key = Tuple[int, Any]
Writes = Dict[_Key, Tuple[Scope, Any, Optional[Value]]]
"""Cells and what a branch left in them, by the identity of the scope and the name; None where it took them away."""


class Store:
    """Reads and writes variables, and knows what was written since a branch began.

    A scope is an ordinary dictionary; all writes go through here. A branch is walked between `begin_branch` and
    `end_branch`, which puts everything back and hands out what was written; `merge` then writes what is true after all
    branches.
    """

    def __init__(self) -> None:
        self._journals: List[Writes] = []
        self._readings: List[Tuple[Set[_Key], Set[_Key]]] = []

    def read(self, scope: Scope, name: Any) -> Optional[Value]:
        """Read a variable; None where there is none."""
        value = scope.get(name)
        if self._readings and value is not None:
            exposed, written = self._readings[-1]
            key = (id(scope), name)
            if key not in written:
                exposed.add(key)
        return value

    def write(self, scope: Scope, name: Any, value: Optional[Value]) -> None:
        """Write a variable, or take it away with None."""
        key = (id(scope), name)
        if self._journals and key not in self._journals[-1]:
            self._journals[-1][key] = (scope, name, scope.get(name))
        if self._readings:
            self._readings[-1][1].add(key)
        if value is None:
            scope.pop(name, None)
        else:
            scope[name] = value

    def add(self, scope: Scope, name: Any, value: Value) -> None:
        """Let a variable be this, too."""
        old = scope.get(name, UNKNOWN)
        joined = join(old, value)
        if len(joined) != len(old) or name not in scope:
            self.write(scope, name, joined)

    def begin_branch(self) -> None:
        """From now on remember what is written."""
        self._journals.append({})

    def end_branch(self) -> Writes:
        """Put back what was there when the branch began; return what it had written."""
        journal = self._journals.pop()
        writes: Writes = {}
        for key, (scope, name, old) in journal.items():
            writes[key] = (scope, name, scope.get(name))
            if old is None:
                scope.pop(name, None)
            else:
                scope[name] = old
        return writes

    def merge(self, branches: List[Writes]) -> None:
        """Write what is true after one of these branches was taken: what a variable may be after any of them."""
        variables: Writes = {}
        for writes in branches:
            variables.update(writes)
        for key, (scope, name, _last) in variables.items():
            ends = [writes[key][2] if key in writes else scope.get(name) for writes in branches]
            known = [value for value in ends if value is not None]
            self.write(scope, name, join(*known) if known else None)

    @contextmanager
    def without_branches(self) -> Iterator[None]:
        """Write for good for a while, whatever branch is walked: a module that one imports is there for all."""
        journals, readings = self._journals, self._readings
        self._journals, self._readings = [], []
        try:
            yield
        finally:
            self._journals, self._readings = journals, readings

    def begin_loop(self) -> None:
        """From now on remember which variables are read before they are written."""
        self._readings.append((set(), set()))

    def end_loop(self, after: Writes) -> bool:
        """Tell whether another round of the loop would read other values than the first did.

        `after` is what the round has written; it is put back already.
        """
        exposed, written = self._readings.pop()
        if self._readings:
            outer_exposed, outer_written = self._readings[-1]
            outer_exposed.update(exposed - outer_written)
            outer_written.update(written)
        for key in exposed:
            if key in after:
                scope, name, new = after[key]
                old = scope.get(name, UNKNOWN)
                if any(item not in old for item in new or UNKNOWN):
                    return True
        return False
