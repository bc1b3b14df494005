"""The memory check of a step that is compiled: a close look only where an upper bound does not fit."""

from __future__ import annotations

from typing import Any, Optional

from ..capture import StepGraph
from ..diagnostics import Finding, PortingError
from ..options import PortOptions
from ..targets import DEFAULT, find_target
from .memory_look import FITS, MemoryReport, count_bytes_per_weight, make_layout
from .memory_model import measure_ipus
from .remedies import find_first_remedy
from .step_bound import bound_bytes
from .step_walk import walk_step

__all__ = ["note_memory"]


def note_memory(graph: StepGraph, options: PortOptions, optimizer: Any, *, target: str = DEFAULT) -> Optional[Finding]:
    """Return M001 with the first remedy if the captured training step would not fit into an IPU of `target`, or None.

    None as well for a step whose memory cannot be predicted, such as one with a branch.
    """
    found = find_target(target)
    bound = bound_bytes(graph, num_stages=len(options.stage_ipus), bytes_per_weight=count_bytes_per_weight(optimizer))
    if bound <= FITS * found.memory_bytes:
        return None
    _number_stages(graph)
    try:
        step = walk_step(graph, _count_rows(graph))
    except PortingError as error:
        if error.code != "M002":
            raise
        return None
    layout = make_layout(step, options, optimizer, found)
    report = MemoryReport(
        target=found,
        micro_batch=step.micro_batch,
        ipus=measure_ipus(step, layout),
        remedies=find_first_remedy(step, layout, options, limit=int(FITS * found.memory_bytes)),
        options=options,
    )
    return report.finding


def _number_stages(graph: StepGraph) -> None:
    """Note the stage of each operator as `PortOptions.stage_ipus` numbers them: another one where the IPU changes."""
    number, before = 0, 0
    for node in graph.graph.nodes:
        ipu = node.meta.get("ipu")
        if ipu is not None:
            number += ipu != before
            before = ipu
        node.meta["pipeline_stage"] = number


def _count_rows(graph: StepGraph) -> int:
    return next((info.shape[0] for info in graph.inputs if info.shape), 1)
