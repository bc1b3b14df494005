"""Internals that programs and tests reach for by name."""

from __future__ import annotations

import weakref
from typing import Any

from ._executables.executable_cache import compilation_lock as distributedCacheLock
from ._tracing_state import isDispatchTracing, isRunningOnIpu
from ._weights.host_weights import restore_wrapper_if_necessary, unwrap_model, wrap_model

__all__ = [
    "distributedCacheLock",
    "isDispatchTracing",
    "isRunningOnIpu",
    "rewrapModelIfNecessary",
    "unwrapModelIfNecessary",
]

_restoreWrapperIfNecessary = restore_wrapper_if_necessary

_unwrapped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def unwrapModelIfNecessary(model: Any) -> bool:
    """Give a model that a training executor wrapped its plain classes back, with its trained weights; tell if so."""
    executor = unwrap_model(model)
    if executor is not None:
        _unwrapped[model] = weakref.ref(executor)
    return executor is not None


def rewrapModelIfNecessary(model: Any) -> bool:
    """Undo `unwrapModelIfNecessary`; tell whether there was anything to undo."""
    reference = _unwrapped.pop(model, None)
    executor = reference() if reference is not None else None
    if executor is not None:
        wrap_model(model, executor._owner)
    return executor is not None
