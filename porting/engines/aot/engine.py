"""Compile a step's programs into a folder, which is all that a later process needs to run them.

In the folder: `call.json` (how a call uses the programs) and, for each role, `<role>.program` (what is compiled) and
`<role>/` (what the compiler made of it).
"""

from __future__ import annotations

import importlib
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, List, Optional

import torch

from ...capture import StepGraph
from ...support.atomic_files import write_atomically
from ...support.interleaved import Interval
from ...torch_insides import programs, tell_loss
from ..calls.executable import BuildRequest, Choice
from ..compiled.call_layout import CallLayout, describe_layout
from ..compiled.compile_settings import CompileSettings
from ..compiled.executable import CompiledExecutable
from ..compiled.folder_engine import FolderEngine
from ..compiled.program_file import write_program
from ..compiled.programs import Programs
from ..compiled.step_program import build_programs
from ..compiled.why_replay import why_not_aot, why_torch_is_too_old
from ..contract.failures import CompileFailure, NotCompilable
from ..contract.limits import CompileLimits
from ..contract.step_cost import StepCost
from ..replay.replay import build_replay
from .choices import list_whole_steps
from .compile_process import CompilerProcess, compile_in_child
from .library import load_library

__all__ = ["AOT", "AotEngine"]

_LAYOUT = "call.json"


class AotEngine(FolderEngine[CompiledExecutable]):
    """Whole optimizer steps as programs of torch's compiler, each a shared library."""

    name = "aot"

    def list_choices(self, graph: StepGraph, request: BuildRequest) -> List[Choice]:
        """Return the whole steps that are worth a compilation."""
        return list_whole_steps(self.name, graph, request)

    def predict(self, choice: Choice, cost: StepCost) -> Interval:
        """Return the seconds that a call usually takes, with the least and the most."""
        # a process that only loads a program needs nothing of the compiler, whose kernels predictions know
        predictions = importlib.import_module("porting.engines.aot.predictions")
        seconds: Interval = predictions.predict_seconds(choice, cost)
        return seconds

    def prepare(self, folder: Path) -> CompilerProcess:
        """Start a process that a `compile` into `folder` will need; whoever starts it has to end it.

        NotCompilable, CompileFailure or OSError where that cannot be.
        """
        reason = why_torch_is_too_old(torch.__version__)
        if reason:
            raise NotCompilable(reason)
        # what loads a program, without which one is compiled in vain
        reason = programs.probe()
        if reason:
            raise CompileFailure("torch", f"torch {torch.__version__} has {reason}")
        return CompilerProcess(folder)

    def compile(
        self,
        graph: StepGraph,
        request: BuildRequest,
        folder: Path,
        *,
        limits: CompileLimits,
        progress: Optional[Callable[[float], None]] = None,
        prepared: Optional[CompilerProcess] = None,
    ) -> None:
        """Trace the programs of `graph` and compile each into `folder`, by a `prepared` process if there is one.

        Raises NotCompilable for a step that needs replay and CompileFailure where the compiler fails.
        """
        deadline = time.monotonic() + limits.seconds
        # Both settings are the process's: kernels are compiled for a number of threads, and determinism is a mode of
        # torch.
        settings = CompileSettings(
            num_threads=request.choice.num_threads or torch.get_num_threads(),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
        )
        with prepared or self.prepare(folder) as process:
            programs = _trace_programs(graph, request)
            # there is seldom a second one
            compilers = itertools.chain([process.compile], itertools.repeat(compile_in_child))
            for (role, program), compile_program in zip(programs.by_role.items(), compilers):
                file = folder / f"{role}.program"
                write_program(program, file)
                left = replace(limits, seconds=max(1.0, deadline - time.monotonic()))
                compile_program(file, folder / role, settings=settings, limits=left, progress=progress)
        # Last: a folder with this file is complete.
        write_atomically(folder / _LAYOUT, json.dumps(describe_layout(programs.layout)).encode())

    def load(self, graph: StepGraph, request: BuildRequest, folder: Path) -> CompiledExecutable:
        """Make the executable of the programs in `folder`; nothing is traced, and no compiler is imported for aot."""
        layout = CallLayout.from_dict(json.loads((folder / _LAYOUT).read_bytes()))
        runners = {role: load_library(folder / role) for role in layout.arguments}
        for loss in (loss for runner in runners.values() for loss in runner.left_out):
            tell_loss(loss)
        return CompiledExecutable(graph, request, layout, runners, lambda: build_replay(graph, request), name=self.name)


def _trace_programs(graph: StepGraph, request: BuildRequest) -> Programs:
    programs = build_programs(graph, request)
    # Found out before a compiler runs for a minute and fails with a message that nobody understands.
    for program in programs.by_role.values():
        reason = why_not_aot(program.module.graph)
        if reason:
            raise NotCompilable(reason)
    return programs


AOT = AotEngine()
