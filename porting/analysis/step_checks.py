"""Run all checks of a captured step, one after the other. Preflights use it."""

from __future__ import annotations

from typing import Iterator, Sequence

from torch import nn

from ..capture import StepGraph
from ..diagnostics import Finding
from ..host_tensors import HostTensor
from .gradient_paths import iter_gradient_faults
from .narrowed_values import iter_narrowed_values
from .operator_support import collect_attention, iter_operator_faults
from .step_effects import iter_random_numbers, iter_written_inputs
from .wide_state import iter_wide_state

__all__ = ["iter_step_faults"]


def iter_step_faults(graph: StepGraph, model: nn.Module, hosts: Sequence[HostTensor]) -> Iterator[Finding]:
    """Yield the faults of a captured step of `model`, whose tensors are `hosts`, beside the capture's own findings."""
    yield from iter_operator_faults(graph, attention=collect_attention(model))
    # what no operator reads stays on the host
    read = {info.name for info, node in zip(graph.entering, graph.placeholders) if node.users}
    yield from iter_wide_state([host for host in hosts if host.name in read])
    yield from iter_narrowed_values(graph)
    yield from iter_gradient_faults(graph)
    yield from iter_written_inputs(graph)
    yield from iter_random_numbers(graph)
