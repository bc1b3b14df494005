"""Compare captures of a step in several states of the model, on several batches, to find frozen values."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from torch import nn

from ..api.frozen_checks import iter_frozen_findings
from ..capture import StepGraph
from ..capture.frozen_values import list_frozen_values
from ..capture.second_run import without_trace
from ..diagnostics import Finding

__all__ = ["list_frozen"]

Modules = Sequence[Tuple[str, nn.Module]]
Capture = Callable[[], Optional[StepGraph]]


def list_frozen(
    first: Optional[StepGraph], again: Sequence[Capture], modules: Modules, *, allowed: Sequence[str], ends: float
) -> List[Finding]:
    """List C020 for the values that one of the captures `again` has otherwise than `first`; a line may have several.

    Each capture goes on from the state that the one before it has left, which is put back at the end: what only the
    third run of `forward` does otherwise is found as well. `modules` are those with their prefix whose attributes
    count; `allowed` names attributes and modules that are meant to be frozen. There is at least one further capture,
    and none is begun after the moment `ends` of the monotonic clock.
    """
    if not again or first is None:
        return []
    later: List[Finding] = []
    different: List[Any] = []
    # from the inside out: a trace is taken back when all later runs are over
    with without_trace(modules) as changes:
        graph = again[0]()
        if graph is not None:
            different = list_frozen_values(first, graph)
        # after another branch nothing can be compared
        if time.monotonic() < ends and not any(value.changes_operators for value in different):
            later = list_frozen(first, again[1:], modules, allowed=allowed, ends=ends)
    return [*iter_frozen_findings(different, dict(changes), tuple(allowed), modules), *later]
