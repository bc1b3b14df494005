"""Compile into a folder, which is all that a later process needs to run the result.

The engines `aot` and `recurrence` are such a `FolderEngine`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Callable, Generic, Optional, TypeVar

from ...capture import StepGraph
from ..calls.executable import BuildRequest, Executable
from ..contract.limits import CompileLimits

__all__ = ["FolderEngine"]

Made = TypeVar("Made", bound=Executable)


class FolderEngine(ABC, Generic[Made]):
    """Compiles a step into a folder, and makes executables of such a folder; `name` is the engine's."""

    name: str

    def __call__(self, graph: StepGraph, request: BuildRequest) -> Made:
        """Compile into a folder that goes with the executable."""
        folder = Path(tempfile.mkdtemp(prefix="porting-"))
        try:
            self.compile(graph, request, folder, limits=CompileLimits())
            executable = self.load(graph, request, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # The library stays mapped; the files may go with the last call, not before.
        weakref.finalize(executable, shutil.rmtree, folder, True)
        return executable

    @abstractmethod
    def compile(
        self,
        graph: StepGraph,
        request: BuildRequest,
        folder: Path,
        *,
        limits: CompileLimits,
        progress: Optional[Callable[[float], None]] = None,
    ) -> None:
        """Compile `graph` into `folder`; `progress` gets the seconds so far, now and then, and may raise to end it.

        Raises NotCompilable for a step that is not for this engine, and CompileFailure where the compiler fails.
        """

    @abstractmethod
    def load(self, graph: StepGraph, request: BuildRequest, folder: Path) -> Made:
        """Make the executable of what was compiled into `folder`."""
