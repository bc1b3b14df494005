"""Internals that programs and tests reach for by name."""

from __future__ import annotations

from typing import Any

from ._host_weights import restore_wrapper_if_necessary, rewrap_model, unwrap_model
from ._tracing_state import isDispatchTracing, isRunningOnIpu

__all__ = [
    "isDispatchTracing",
    "isRunningOnIpu",
    "rewrapModelIfNecessary",
    "unwrapModelIfNecessary",
]

_restoreWrapperIfNecessary = restore_wrapper_if_necessary


def unwrapModelIfNecessary(model: Any) -> Any:
    """Give a model that a training executor wrapped its plain classes back; the executor is returned for rewrapping."""
    return unwrap_model(model)


def rewrapModelIfNecessary(model: Any, executor: Any = None) -> None:
    """Undo `unwrapModelIfNecessary`."""
    if executor is not None:
        rewrap_model(model, executor)
