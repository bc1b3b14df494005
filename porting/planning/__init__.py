"""Planning of memory: what a step needs on its device, before there is one, and what to trade if it does not fit.

The public names are loaded on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .memory_look import MemoryReport, memory_report
    from .memory_model import StageMemory
    from .remedies import Remedy

__all__ = ["MemoryReport", "Remedy", "StageMemory", "memory_report"]

_MODULES = {
    "MemoryReport": "memory_look",
    "Remedy": "remedies",
    "StageMemory": "memory_model",
    "memory_report": "memory_look",
}


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("porting.capture")  # says so first where torch is too old for it
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
