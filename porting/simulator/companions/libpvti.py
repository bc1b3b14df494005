"""Stand in for the library of the vendor's system profile: its trace points do nothing, no profile is written."""

from __future__ import annotations

from typing import Iterable, TypeVar

from . import refuse_unknown_names

__all__ = ["Tracepoint", "createTraceChannel", "instrument"]

_Object = TypeVar("_Object")


class Tracepoint:
    """A span of time in a channel; as a context, or from `begin` to `end`.

    >>> with Tracepoint(createTraceChannel("loading"), "epoch"):
    ...     pass
    """

    def __init__(self, channel: str, label: str) -> None:
        """Take a channel and the span's name."""

    def __enter__(self) -> Tracepoint:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the span."""

    @staticmethod
    def begin(channel: str, label: str) -> None:
        """Begin a span."""

    @staticmethod
    def end(channel: str, label: str) -> None:
        """End a span."""


def createTraceChannel(name: str) -> str:
    """Return a channel: here its name."""
    return name


def instrument(obj: _Object, methods: Iterable[str], channel: str) -> _Object:
    """Return `obj` as it is."""
    del methods, channel
    return obj


__getattr__ = refuse_unknown_names("libpvti")
