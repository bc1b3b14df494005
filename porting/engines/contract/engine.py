"""The contract of an engine, for this package's and for those that other packages bring."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, Protocol, Sequence

from ...capture import StepGraph
from ...support.interleaved import Interval
from ..calls.executable import BuildRequest, Choice, Executable
from .limits import CompileLimits
from .step_cost import StepCost

__all__ = ["CompilingEngine", "Engine", "TunedEngine", "is_compiling", "replays_most"]


class Engine(Protocol):
    """What the table of engines and the entry points `porting.engines` name: something that makes executables.

    `graph` has the memory format of `request.choice` already. An engine that cannot do a step raises `NotCompilable`
    with the reason; whatever else it raises is told the user, and replay runs the step.
    """

    def __call__(self, graph: StepGraph, request: BuildRequest) -> Executable:
        """Return an executable of `graph`, ready to run."""


class CompilingEngine(Engine, Protocol):
    """An engine whose executables can be kept on disk: making one and loading it are apart.

    It may also have `prepare(folder)`, which starts what compiling into `folder` takes, such as the loading of a
    compiler. The result has `end()`, which is always called; the next `compile` gets it as `prepared`, and may end it.
    """

    def compile(
        self,
        graph: StepGraph,
        request: BuildRequest,
        folder: Path,
        *,
        limits: CompileLimits,
        progress: Callable[[float], None],
    ) -> None:
        """Write all that `load` needs into the empty `folder`; it may be called by any thread.

        `progress` wants to be called every second or so, with the seconds so far; what it raises must come through, and
        leave nothing running. Raises `NotCompilable` or `CompileFailure` with the reason.
        """

    def load(self, graph: StepGraph, request: BuildRequest, folder: Path) -> Executable:
        """Make the executable of what `compile` wrote, in this process or another; `folder` stays as it is.

        Raises any exception for a folder that is damaged.
        """


class TunedEngine(CompilingEngine, Protocol):
    """A compiling engine that says what tuning may try of it; each of the three may be missing.

    An engine without `list_choices` has one choice. One without `predict` is compiled to find out.
    """

    replays_most: bool
    """Whether it replays a step but for a few loops: then it compiles in seconds, and its update is replay's."""

    def list_choices(self, graph: StepGraph, request: BuildRequest) -> Sequence[Choice]:
        """Return the choices of `graph` that are worth a compilation, the simpler ones first."""

    def predict(self, choice: Choice, cost: StepCost) -> Optional[Interval]:
        """Return the seconds that a call of `cost` usually takes as `choice`, with the least and the most.

        A choice that cannot become the fastest even with the least is not compiled. None where that is not known.
        """


def is_compiling(engine: object) -> bool:
    """Tell whether `engine` is a `CompilingEngine`."""
    return callable(getattr(engine, "compile", None)) and callable(getattr(engine, "load", None))


def replays_most(engine: object) -> bool:
    """Tell whether `engine` says of itself that it replays most of a step."""
    return bool(getattr(engine, "replays_most", False))
