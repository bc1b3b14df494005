"""Report what a step loses because the device has no double precision. The step checks run it."""

from __future__ import annotations

from typing import Iterator, Tuple

import torch

from ..capture import StepGraph
from ..diagnostics import Finding, join_names, say_number

__all__ = ["iter_narrowed_values"]

_MOST_NAMES = 5


def iter_narrowed_values(graph: StepGraph) -> Iterator[Finding]:
    """Yield C044 for tensors of double precision in a step: parameters, buffers, inputs, and results of operators."""
    wide = [f"{info.kind} {info.name}" for info in graph.entering if info.host_dtype == torch.float64]
    if wide:
        yield _make_narrowing(f"{say_number(len(wide), 'tensor')} of the step: {join_names(wide, most=_MOST_NAMES)}")
    told = set()
    for node in graph.graph.nodes:
        # a cast to what a tensor is on the device already makes no node of its own
        place = node.meta.get("coerced_at")
        if node.meta.get("coerced_from") == torch.float64 and place not in told:
            told.add(place)
            yield _make_narrowing("a tensor that `forward` makes", place=place, label="float64 is asked for here")


def _make_narrowing(what: str, **where: object) -> Finding:
    facts: Tuple[str, ...] = ("the device has no float64; losses differ from those of plain PyTorch by rounding",)
    return Finding(
        "C044",
        message=f"{what} would be float64, and is float32 on the device",
        notes=facts,
        help="compare with plain PyTorch in float32, or compute on the host what needs double precision",
        **where,  # type: ignore[arg-type]
    )
