"""Set trace points in the vendor's system profile; without its library and ``PVTI_OPTIONS`` they do nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import Any, ContextManager, TypeVar

__all__ = ["Channel"]

_Object = TypeVar("_Object")


class Channel:
    """A named row of the profile.

    >>> with Channel("training").tracepoint("epoch"):
    ...     total = sum(range(4))
    >>> total
    6
    """

    def __init__(self, name: str) -> None:
        """Open the row, if profiles are written at all: with ``PVTI_OPTIONS`` set and ``libpvti`` installed."""
        is_wanted = os.environ.get("PVTI_OPTIONS") and importlib.util.find_spec("libpvti") is not None
        self._pvti: Any = importlib.import_module("libpvti") if is_wanted else None
        self._channel = self._pvti.createTraceChannel(name) if self._pvti is not None else None

    def instrument(self, obj: _Object, *method_names: str) -> _Object:
        """Record each call of these methods of `obj`, an object or a class; return `obj`."""
        if self._pvti is not None:
            self._pvti.instrument(obj, list(method_names), self._channel)
        return obj

    def tracepoint(self, name: str) -> ContextManager[Any]:
        """Return a context whose duration is recorded under `name`."""
        if self._pvti is None:
            return contextlib.nullcontext()
        return self._pvti.Tracepoint(self._channel, name)
