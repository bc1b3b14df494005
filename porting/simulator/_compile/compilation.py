"""A compilation with what is written about it: checks of the target, log lines, and the files of the executable."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import torch
from torch import nn

from ...capture import StepGraph
from ...support.atomic_files import write_atomically
from .._args_parser import BoundArguments, contains_dict
from .._device.device_target import check_target
from .._executables.executable_cache import compilation_lock, keep_executable
from .._graph.graph_files import export_graph, trace_graph
from .._logging import logger
from ..errors import native_error
from ..options import Options
from .program import CompiledModel, compile_model

__all__ = ["announce_compilation", "compile_and_keep"]

# What may differ between two compilations with the same result.
_NO_PART_OF_EXECUTABLES = frozenset(
    "compilation_progress_bar_fn cachePath enableEngineCaching log_dir max_repeat_logs random_seed connection_type "
    "engineOptions ipu_id model_name distributed_process_id globalReplicaOffset".split()
)


def announce_compilation(bound: BoundArguments, options: Options) -> None:
    """Check the target, and warn of arguments that it supports in part; `poptorch.Error` for a bad target."""
    check_target(options)
    if contains_dict([bound.positional, *bound.named.values()]):
        logger.warning(
            "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
            "functionality is not enabled. Consider changing dict inputs to tuple."
        )


def compile_and_keep(
    model: nn.Module,
    bound: BoundArguments,
    options: Options,
    *,
    training: bool,
    optimizer_type: Any,
    check_graph: Callable[[StepGraph], None],
    **details: Any,
) -> CompiledModel:
    """Compile as `compile_model` does, one process after the other, and write the files that the options ask for.

    `check_graph` may refuse what was traced; `details` are further arguments of `compile_model`.
    """
    with torch.inference_mode(False), compilation_lock(model, options):
        compiled = compile_model(model, bound, options, training=training, **details)
        trace_graph(compiled.graph)
        check_graph(compiled.graph)
        export_graph(compiled.graph)
        # what besides the graph makes an executable what it is
        settings = {key: value for key, value in options.toDict().items() if key not in _NO_PART_OF_EXECUTABLES}
        keep_executable(compiled.graph, options, settings={**settings, "optimizer": str(optimizer_type)})
    _write_profile(options, training=training)
    return compiled


def _write_profile(options: Options, *, training: bool) -> None:
    """Write ``<folder>/<model name, "training" or "inference">/profile.pop`` if profiling is on.

    The engine options of ``enableProfiling`` and ``POPLAR_ENGINE_OPTIONS`` say so, the latter have the last word.
    """
    text = os.environ.get("POPLAR_ENGINE_OPTIONS") or "{}"
    try:
        overriding = json.loads(text)
    except ValueError as error:
        raise native_error(f"POPLAR_ENGINE_OPTIONS is not JSON: {error}") from None
    if not isinstance(overriding, dict):
        raise native_error(f"POPLAR_ENGINE_OPTIONS must be a JSON object, got {text}")
    engine = {**(options._Popart.options.get("engineOptions") or {}), **overriding}
    if str(engine.get("autoReport.all", "false")).lower() != "true":
        return
    name = options.model_name if options.exists("model_name") else ("training" if training else "inference")
    write_atomically(
        Path(engine.get("autoReport.directory", ".")) / name / "profile.pop",
        b"profile of porting.simulator: the model ran on the CPU, there are no measurements of an IPU\n",
    )
