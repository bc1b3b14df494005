"""Refuse what a device does not take: a fault is raised, or collected by a run that continues with a guess.

Code that refuses something calls `refuse(error)` instead of `raise error`, and then continues with a substitute: an
example value, a plausible shape. Where nobody collects, as in a usual run, the error is raised.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Callable, Iterator, List, Optional

from porting.diagnostics.errors import PortingError

__all__ = ["amended_refusals", "are_refusals_collected", "collected_refusals", "refuse"]

_Collector = Callable[[PortingError], None]

# of one thread: errors of a loader's workers do not belong to the run
_collector: ContextVar[Optional[_Collector]] = ContextVar("porting_refusals", default=None)


def refuse(error: PortingError) -> None:
    """Raise `error`; where refusals are collected, keep it and return, so that the caller continues with a guess."""
    collector = _collector.get()
    if collector is None:
        raise error
    collector(error)


def are_refusals_collected() -> bool:
    """Tell whether refusals are kept at present, and not raised."""
    return _collector.get() is not None


@contextmanager
def collected_refusals(collector: Optional[_Collector] = None) -> Iterator[List[PortingError]]:
    """Collect refusals while the context lasts; the value lists them, in their order.

    A `collector` gets each error instead, and may raise it.

    >>> with collected_refusals() as found:
    ...     refuse(PortingError.of("L002"))
    >>> [error.code for error in found]
    ['L002']
    """
    found: List[PortingError] = []
    token = _collector.set(found.append if collector is None else collector)
    try:
        yield found
    finally:
        _collector.reset(token)


@contextmanager
def amended_refusals(amend: Callable[[PortingError], PortingError]) -> Iterator[None]:
    """Pass errors that are collected while the context lasts through `amend`, which may know a better line."""
    outer = _collector.get()
    if outer is None:
        yield
        return
    token = _collector.set(lambda error: outer(amend(error)))
    try:
        yield
    finally:
        _collector.reset(token)
