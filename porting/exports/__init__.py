"""Export training steps as files: one process captures them, another compiles them, and people read their dumps."""

from __future__ import annotations

from .. import simulator  # noqa: F401 - defines the operators of the device, which a step's graph calls
from ..executables.exported_step import BatchRecord, ExportedStep, load_step
from ..executables.step_file import is_step_file
from .export import capture, export

__all__ = ["BatchRecord", "ExportedStep", "capture", "export", "is_step_file", "load_step"]
