"""Exchange a part of torch, or of another library, for a time; whatever does so uses this one way.

Several exchanges of one part lie above each other, and may end in any order, in any thread.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from .parts import make_missing_error

__all__ = ["exchange", "exchanged"]

_ABSENT: Any = object()
_LOCK = threading.RLock()


class _Exchanges(NamedTuple):
    """What was there before all exchanges of one attribute, and what those make of it, the innermost first."""

    owner: Any
    original: Any
    makers: List[Callable[[Any], Any]]


# by the identity of the owner, which is kept alive, and the name
_CURRENT: Dict[Tuple[int, str], _Exchanges] = {}


def exchange(owner: object, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Let `make(what was there)` stand for `owner.name`; return the function that ends it.

    `owner` is a class, which may inherit the attribute, or a module; MissingPart where it has none.
    """
    if not hasattr(owner, name):
        raise make_missing_error(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}", "it cannot be exchanged")
    # an exchange of its own, also where the same function is given twice
    maker = lambda original: make(original)  # noqa: E731
    with _LOCK:
        found = _CURRENT.setdefault((id(owner), name), _Exchanges(owner, vars(owner).get(name, _ABSENT), []))
        found.makers.append(maker)
        _write(found, name)

    def end() -> None:
        with _LOCK:
            if maker in found.makers:
                found.makers.remove(maker)
                _write(found, name)
            if not found.makers:
                _CURRENT.pop((id(owner), name), None)

    return end


@contextmanager
def exchanged(owner: object, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Exchange `owner.name`, as `exchange` does, while the context lasts.

    >>> class Greeting:
    ...     def say(self):
    ...         return "hello"
    >>> with exchanged(Greeting, "say", lambda say: lambda self: say(self).upper()):
    ...     Greeting().say()
    'HELLO'
    >>> Greeting().say()
    'hello'
    """
    end = exchange(owner, name, make)
    try:
        yield
    finally:
        end()


def _write(exchanges: _Exchanges, name: str) -> None:
    """Put what all exchanges make of the original in its place; the original itself where there are none."""
    owner, value, makers = exchanges
    if value is _ABSENT and name in vars(owner):
        delattr(owner, name)
    if value is _ABSENT and makers:
        value = _find_inherited(owner, name)
    for make in makers:
        value = make(value)
    if value is not _ABSENT:
        setattr(owner, name, value)


def _find_inherited(owner: object, name: str) -> Any:
    """Return an attribute as the class has it that `owner` inherits it from, and not what Python makes of it."""
    return next((vars(base)[name] for base in getattr(owner, "__mro__", ()) if name in vars(base)), _ABSENT)
