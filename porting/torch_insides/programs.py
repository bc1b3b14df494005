"""Name what torch loads a compiled program with; the engine `aot` uses it, and cannot be without."""

from __future__ import annotations

from typing import Any

from .parts import Parts

__all__ = ["ProgramRunner", "probe"]

_PARTS = Parts("no step can be compiled")
probe = _PARTS.probe

ProgramRunner: Any = _PARTS.find("torch._C:_aoti.AOTIModelContainerRunnerCpu")
"""Loads a library by its absolute path, with a number of instances, and has its `run`."""
