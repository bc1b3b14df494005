"""Name what torch loads a compiled program with; the engine `aot` uses it, and cannot be without."""

from __future__ import annotations

from typing import Any

from .parts import Parts

__all__ = ["PARTS", "ProgramRunner", "probe"]

PARTS = Parts("no step can be compiled")
probe = PARTS.probe

ProgramRunner: Any = PARTS.find("torch._C:_aoti.AOTIModelContainerRunnerCpu")
"""Loads a library by its absolute path, with a number of instances, and has its `run`."""
