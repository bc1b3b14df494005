"""Plain attributes that `forward` reads are compiled in: which it read is noted, and a later change of one is seen."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from torch import nn

__all__ = ["AttributeReads", "AttributeWatch", "ChangedAttribute", "reads_noted"]

AttributeReads = Dict[int, Dict[str, Any]]
"""The plain attributes that were read, with their first values, by the identity of their module."""

_PLAIN = (bool, int, float, complex, str, type(None))
_MOST_ITEMS = 16
# modules looked at in one call: each takes 0.2 to 0.5 microseconds
_MODULES_A_CALL = 6


class ChangedAttribute(NamedTuple):
    """An attribute that is not what was compiled in any more."""

    name: str
    before: Any
    after: Any


_Turn = Tuple[List[Tuple[Callable[[str], Any], Tuple[str, ...]]], List[Tuple[Any, ...]]]


@contextmanager
def reads_noted(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[AttributeReads]:
    """Note which plain attributes of `modules` are read while the context lasts, be it of the instance or its class."""
    noted: AttributeReads = {id(module): {} for _prefix, module in modules}
    of_torch = {*dir(nn.Module), *vars(nn.Module())}
    read: Callable[[Any, str], Any] = nn.Module.__getattribute__

    def note(module: nn.Module, name: str) -> Any:
        value = read(module, name)
        if _is_plain(value) and name not in of_torch:
            names = noted.get(id(module))
            if names is not None:
                names.setdefault(name, value)
        return value

    nn.Module.__getattribute__ = note  # type: ignore[assignment]
    try:
        yield noted
    finally:
        del nn.Module.__getattribute__


class AttributeWatch:
    """Attributes with the values that were compiled in; `look` compares some of them, in turns.

    What `forward` itself changes is not among them: a compiled step does not run it.

    >>> module = nn.Dropout(0.1)
    >>> watch = AttributeWatch([("drop.", module)], {id(module): {"p": 0.1}}, allowed=())
    >>> module.p = 0.5
    >>> watch.look()
    [ChangedAttribute(name='drop.p', before=0.1, after=0.5)]
    >>> watch.look()
    []
    """

    def __init__(
        self, modules: Sequence[Tuple[str, nn.Module]], reads: AttributeReads, *, allowed: Sequence[str]
    ) -> None:
        """Watch what `modules` had read of them, except for `allowed` names."""
        self._entries: List[_Entry] = []
        self._next = 0
        for prefix, module in modules:
            read = reads.get(id(module), {})
            names = [name for name in read if prefix + name not in allowed and _has_still(module, name, read[name])]
            if names:
                self._entries.append(_Entry.of(prefix, vars(module).get, {name: read[name] for name in names}))
        self._turns = self._make_turns()

    def look(self) -> List[ChangedAttribute]:
        """Return what has changed of the attributes whose turn it is; each is returned once."""
        turn = self._next
        if turn >= len(self._turns):
            return []
        self._next = (turn + 1) % len(self._turns)
        getters, values = self._turns[turn]
        try:
            if [tuple(map(get, names)) for get, names in getters] == values:
                return []
        except (RuntimeError, TypeError, ValueError):
            pass  # a tensor in the place of a number, which `_changes` finds
        found: List[ChangedAttribute] = []
        for number in range(turn * _MODULES_A_CALL, min((turn + 1) * _MODULES_A_CALL, len(self._entries))):
            found += self._changes(number)
        self._turns = self._make_turns()
        return found

    def _make_turns(self) -> List[_Turn]:
        parts = [
            self._entries[first : first + _MODULES_A_CALL] for first in range(0, len(self._entries), _MODULES_A_CALL)
        ]
        return [([(entry.get, entry.names) for entry in part], [entry.values for entry in part]) for part in parts]

    def _changes(self, number: int) -> List[ChangedAttribute]:
        """Return the changed attributes of an entry, and watch only the others from now on."""
        prefix, get, names, values, compiled = self._entries[number]
        changed = [name for name, value in zip(names, values) if not _are_same(get(name), value)]
        left = {name: compiled[name] for name in names if name not in changed}
        self._entries[number] = _Entry.of(prefix, get, left)
        return [ChangedAttribute(prefix + name, compiled[name], get(name)) for name in changed]


class _Entry(NamedTuple):
    """The watched attributes of one module: `values` are its own, `compiled` those that `forward` read."""

    prefix: str
    get: Callable[[str], Any]
    names: Tuple[str, ...]
    values: Tuple[Any, ...]
    compiled: Dict[str, Any]

    @classmethod
    def of(cls, prefix: str, get: Callable[[str], Any], compiled: Dict[str, Any]) -> _Entry:
        """Take the values as they are now; None for an attribute that only the class has."""
        return cls(prefix, get, tuple(compiled), tuple(map(get, compiled)), compiled)


def _is_plain(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    return type(value) is tuple and len(value) <= _MOST_ITEMS and all(isinstance(item, _PLAIN) for item in value)


def _has_still(module: nn.Module, name: str, value: Any) -> bool:
    """Tell whether an attribute that was read is a plain one, no property, and `forward` has left it alone."""
    if name in vars(module):
        return _are_same(vars(module)[name], value)
    found = next((vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)), _PLAIN)
    return _is_plain(found) and _are_same(found, value)


def _are_same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (RuntimeError, TypeError, ValueError):
        # a tensor or array in the place of a number: another value
        return False
