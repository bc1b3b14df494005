"""The report that profiling asks for: a file where a profiler looks for it, which says that no IPU was measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Dict

from ...support.atomic_files import write_atomically
from ..errors import native_error
from ..options import Options

__all__ = ["write_profile"]

_FILE_NAME = "profile.pop"


def write_profile(options: Options, *, training: bool) -> None:
    """Write ``<folder>/<model name, "training" or "inference">/profile.pop`` if profiling is on.

    The engine options of ``enableProfiling`` and ``POPLAR_ENGINE_OPTIONS`` say so, the latter have the last word.
    """
    engine: Dict[str, str] = dict(options._Popart.options.get("engineOptions") or {})
    engine.update(_options_of_environment())
    if str(engine.get("autoReport.all", "false")).lower() != "true":
        return
    name = options.model_name if options.exists("model_name") else ("training" if training else "inference")
    write_atomically(
        Path(engine.get("autoReport.directory", ".")) / name / _FILE_NAME,
        b"profile of porting.simulator: the model ran on the CPU, there are no measurements of an IPU\n",
    )


def _options_of_environment() -> Dict[str, str]:
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        options = json.loads(text)
    except ValueError as error:
        raise native_error(f"POPLAR_ENGINE_OPTIONS is not JSON: {error}") from None
    if not isinstance(options, dict):
        raise native_error(f"POPLAR_ENGINE_OPTIONS must be a JSON object, got {text}")
    return options
