"""Show a captured step to people and other programs, as text, JSON, Graphviz or ONNX."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Mapping

from ...diagnostics import ExecutableError
from ...executables.exported_step import ExportedStep

__all__ = ["FORMATS", "dump_graph", "require_format"]

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "text": "porting.exports.dumps.facts:as_text",
        "json": "porting.exports.dumps.facts:as_json",
        "dot": "porting.exports.dumps.facts:as_dot",
        "onnx": "porting.exports.dumps.onnx_form:as_onnx",
    }
)
"""The formats, and the functions that make them; each takes an `ExportedStep` and returns bytes."""


def dump_graph(step: ExportedStep, form: str) -> bytes:
    """Return the graph of `step` in one of `FORMATS`, with its computation order.

    Raises ExecutableError E028 for an unknown format, E027 for an operator that ONNX does not have, PortingError X001
    where the extra `onnx` is missing.
    """
    require_format(form)
    module, _, name = FORMATS[form].partition(":")
    content: bytes = getattr(import_module(module), name)(step)
    return content


def require_format(form: str) -> None:
    """Raise ExecutableError E028 unless `form` is one of `FORMATS`."""
    if form not in FORMATS:
        raise ExecutableError.of(
            "E028",
            message=f"there is no graph format called `{form}`",
            help=f"use one of: {', '.join(FORMATS)}",
        )
