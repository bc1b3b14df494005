"""The engines whose programs a compiler makes: a folder on disk holds all that a later process needs to run them.

In the folder: `call.json` (how a call uses the programs) and, for each role, `<role>.program` (what is compiled) and
`<role>/` (what the compiler made of it).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional

import torch

from ..capture import StepGraph
from ..support.atomic_files import write_atomically
from . import aot, inductor
from .call_layout import CallLayout
from .compile_settings import CompileLimits, CompileSettings
from .compiled import CompiledExecutable
from .executable import BuildRequest
from .program_file import write_program
from .programs import NotCompilable, Programs
from .replay import build_replay
from .step_program import build_programs

__all__ = ["AOT", "INDUCTOR", "CompiledEngine"]

_LAYOUT = "call.json"
# Tracing patches torch for the whole process.
_one_trace_at_a_time = threading.Lock()


class CompiledEngine:
    """Whole optimizer steps as programs of torch's compiler, which `module` makes and loads one by one."""

    def __init__(self, name: str, module: Any, *, lacks: Mapping[str, str] = MappingProxyType({})) -> None:
        """Nothing is compiled; `lacks` tells of operators that the programs cannot call, by name, what needs them."""
        self.name = name
        self._module = module
        self._lacks = lacks

    def __call__(self, graph: StepGraph, request: BuildRequest) -> CompiledExecutable:
        """Compile into a folder that goes with the executable."""
        folder = Path(tempfile.mkdtemp(prefix="porting-"))
        try:
            self.compile(graph, request, folder, limits=CompileLimits())
            executable = self.load(graph, request, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(executable, shutil.rmtree, folder, True)
        return executable

    def compile(
        self,
        graph: StepGraph,
        request: BuildRequest,
        folder: Path,
        *,
        limits: CompileLimits,
        progress: Optional[Callable[[float], None]] = None,
    ) -> None:
        """Trace the programs of `graph` and compile each into `folder`.

        Raises NotCompilable for a step that needs replay and CompileFailure where the compiler fails.
        """
        deadline = time.monotonic() + limits.seconds
        with _one_trace_at_a_time:
            programs = build_programs(graph, request)
        self._require_callable(programs)
        settings = CompileSettings(
            num_threads=request.variant.num_threads or torch.get_num_threads(),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
        )
        for role, program in programs.by_role.items():
            file = folder / f"{role}.program"
            write_program(program, file)
            left = replace(limits, seconds=max(1.0, deadline - time.monotonic()))
            self._module.compile_program(file, folder / role, settings=settings, limits=left, progress=progress)
        write_atomically(folder / _LAYOUT, json.dumps(programs.layout.to_dict()).encode())

    def _require_callable(self, programs: Programs) -> None:
        for program in programs.by_role.values():
            for node in program.module.graph.nodes:
                reason = self._lacks.get(getattr(getattr(node.target, "_schema", None), "name", ""))
                if reason is not None:
                    raise NotCompilable(f"{reason}, which the engine `{self.name}` cannot call")

    def load(self, graph: StepGraph, request: BuildRequest, folder: Path) -> CompiledExecutable:
        """Make the executable of the programs in `folder`; nothing is traced, and no compiler is imported for aot."""
        layout = CallLayout.from_dict(json.loads((folder / _LAYOUT).read_bytes()))
        runners = {role: self._module.load_program(folder / role) for role in layout.arguments}
        return CompiledExecutable(
            graph, request, layout, runners, lambda: build_replay(graph, request), name=self.name, report=request.report
        )


AOT = CompiledEngine(
    "aot",
    aot,
    lacks={"aten::mkldnn_rnn_layer_backward": "a long LSTM is trained by a kernel of oneDNN for all its cells"},
)
INDUCTOR = CompiledEngine("inductor", inductor)
