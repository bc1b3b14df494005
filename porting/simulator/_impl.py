"""Offer the internals of PopTorch that programs and tests import by name."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ._executables.executable_cache import lock_compilation as distributedCacheLock
from ._weights.host_weights import unwrap_model, wrap_model
from ._weights.weight_owners import Owner
from .tracing_state import isDispatchTracing, isRunningOnIpu

__all__ = [
    "distributedCacheLock",
    "isDispatchTracing",
    "isRunningOnIpu",
    "rewrapModelIfNecessary",
    "unwrapModelIfNecessary",
]

# Weak: a model that is never wrapped again must not live on here.
_unwrapped: weakref.WeakKeyDictionary[Any, Owner] = weakref.WeakKeyDictionary()


def _restoreWrapperIfNecessary(model: object) -> Any:
    return model  # pickles hold the plain classes, so nothing is left to restore


def unwrapModelIfNecessary(model: torch.nn.Module) -> bool:
    """Unwrap a model that a training executor wrapped, with its trained weights; tell whether it was wrapped."""
    owner = unwrap_model(model)
    if owner is None or owner() is None:
        return False
    _unwrapped[model] = owner
    return True


def rewrapModelIfNecessary(model: torch.nn.Module) -> bool:
    """Undo `unwrapModelIfNecessary`; tell whether there was anything to undo."""
    owner = _unwrapped.pop(model, None)
    if owner is None or owner() is None:
        return False
    wrap_model(model, owner)
    return True
