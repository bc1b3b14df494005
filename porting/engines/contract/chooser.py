"""A `Chooser` finds the fastest executable of a step.

The one of this package is `porting.engines.tuning`, which is found by its name: where it is not installed, and the
compilers with it, every step is replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Protocol

if TYPE_CHECKING:
    from ...capture import StepGraph
    from ...diagnostics import Finding
    from ..calls.executable import BuildRequest, Executable
    from .limits import TuningLimits
    from .report import TuningReport
    from .trial import Trial

__all__ = ["Chooser", "Tuned", "load_chooser"]


@dataclass(frozen=True)
class Tuned:
    """The chosen executable, its graph in its memory format, and the folder of its programs, if it has any."""

    executable: Executable
    graph: StepGraph
    report: TuningReport
    folder: Optional[Path] = None


class Chooser(Protocol):
    """What "auto" needs besides replay, the store and the engines."""

    def tune(
        self,
        graph: StepGraph,
        request: BuildRequest,
        trial: Trial,
        *,
        folder: Path,
        limits: Optional[TuningLimits],
        known_failures: Mapping[str, str],
        report: Callable[[Finding], None],
        note_failure: Callable[[str, str], None],
    ) -> Tuned:
        """Return the fastest executable of `graph` that computes what replay does, measured on `trial`.

        `folder` is empty and gets what is compiled. Candidates in `known_failures` (by label, with the reason) are not
        tried; `note_failure` gets the label and the reason of each new one.
        """


def load_chooser() -> Chooser:
    """Return the chooser of this installation; one that has none says so by `why_not_installed("auto")`."""
    found: Any = import_module("porting.engines.tuning")
    chooser: Chooser = found
    return chooser
