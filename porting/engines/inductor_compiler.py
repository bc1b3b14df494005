"""Programs as Inductor's cache of one graph: what the engine `inductor` does in the process that compiles."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch._inductor

from .aot import RUNNER
from .aot_compiler import common_options, example_arguments, prepare_inductor, try_out
from .compile_settings import CompileSettings
from .inductor import ARTIFACT
from .program_file import read_program

__all__ = ["compile_here"]

# what `save` writes itself, and what only matters while something is compiled
_NOT_COPIED = ("aotautograd", "fxgraph", "locks")


def compile_here(program_file: Path, folder: Path, *, settings: CompileSettings) -> None:
    """Compile a program in this process and put the cache and what `load_program` must know into `folder`."""
    program = read_program(program_file)
    prepare_inductor(settings)
    _move_to(program.module.graph, settings.device)
    program.module.recompile()
    options = {**common_options(program, settings), **settings.inductor_options}
    artifact = torch._inductor.standalone_compile(
        program.module,
        example_arguments(program, device=settings.device),
        dynamic_shapes="from_example_inputs",
        options={"config_patches": options},
    )
    try_out(lambda tensors: artifact(*tensors), program, device=settings.device)
    artifact.save(path=str(folder / ARTIFACT), format="unpacked")
    # with the compiled kernels a process that loads it compiles nothing
    shutil.copytree(
        os.environ["TORCHINDUCTOR_CACHE_DIR"],
        folder / ARTIFACT,
        ignore=shutil.ignore_patterns(*_NOT_COPIED),
        dirs_exist_ok=True,
    )
    facts = {
        "torch": torch.__version__,
        "num_results": program.num_results,
        "written": list(program.written),
        "device": settings.device,
        "cuda_graphs": settings.cuda_graphs,
        "options": options,
        "arguments": [spec.to_dict() for spec in program.arguments],
    }
    (folder / RUNNER).write_text(json.dumps(facts), encoding="utf-8")


def _move_to(graph: torch.fx.Graph, device: str) -> None:
    """Let the operators that make tensors make them on `device`; programs are traced on the processor."""
    if device == "cpu":
        return
    for node in graph.nodes:
        node.args = tuple(_moved(value, device) for value in node.args)
        node.kwargs = {name: _moved(value, device) for name, value in node.kwargs.items()}


def _moved(value: Any, device: str) -> Any:
    return torch.device(device) if isinstance(value, torch.device) else value
