"""Find the other faults of a model whose capture failed, so that the user sees all of them at once.

`compile_model` adds them to the error as notes.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, List

from torch import nn

from ...analysis.operator_support import collect_attention, find_refused_call, iter_calls
from ...capture import StepGraph
from ...capture.second_run import without_trace
from ...diagnostics import CaptureError, Finding, collected_refusals, say_number
from ...module_attributes import collect_plain_modules

__all__ = ["name_other_faults"]

_MOST_FAULTS = 5


def name_other_faults(error: CaptureError, capture: Callable[..., StepGraph], model: nn.Module) -> CaptureError:
    """Return `error` with notes of the other faults, found by a further `capture` that continues after each fault.

    It takes `failures` as `capture_step` does, leaves `model` unchanged, and writes nothing.
    """
    graphs: List[StepGraph] = []
    with without_trace(list(collect_plain_modules(model).items())), collected_refusals() as found:
        ends: List[Exception] = []
        try:
            graphs.append(capture(failures=ends))
        except Exception as end:  # the fault that is raised is known; this one only ends the search
            ends.append(end)
    first = error.finding
    texts = [_describe_fault(other.finding) for other in found if other.finding.place != first.place]
    attention = collect_attention(model)
    for call in (call for graph in graphs for call in iter_calls(graph)):
        refused = find_refused_call(call, attention=attention)
        if refused is not None:
            texts.append(f"C017 at {call.node.meta.get('place')}: no `aten::{refused.name}` in this form")
    texts = list(dict.fromkeys(texts))
    if not texts:
        return error
    notes = [f"{say_number(len(texts), 'other fault')} in the same step:", *texts[:_MOST_FAULTS]]
    if len(texts) > _MOST_FAULTS:
        notes.append(f"and {len(texts) - _MOST_FAULTS} more: `porting.check(model, loss, batch)` tells all")
    return CaptureError(dataclasses.replace(first, notes=(*first.notes, "\n  ".join(notes))))


def _describe_fault(finding: Finding) -> str:
    where = f" at {finding.place}" if finding.place is not None else ""
    return f"{finding.code}{where}: {finding.message}"
