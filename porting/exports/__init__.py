"""Training steps as files: captured in one process, compiled in another, drawn and listed for people."""

from __future__ import annotations

from .export import capture, export
from .exported_step import BatchRecord, ExportedStep, load_step
from .step_file import is_step_file

__all__ = ["BatchRecord", "ExportedStep", "capture", "export", "is_step_file", "load_step"]
