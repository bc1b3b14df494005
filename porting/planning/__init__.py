"""Planning of memory: what a step needs on its device, before there is one, and what to trade if it does not fit."""

from __future__ import annotations

from .. import capture  # noqa: F401 - says so first where torch is too old for it
from .memory_look import MemoryReport, memory_report
from .memory_model import StageMemory
from .remedies import Remedy

__all__ = ["MemoryReport", "Remedy", "StageMemory", "memory_report"]
