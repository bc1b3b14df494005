"""Run all checks of a captured step, one after the other."""

from __future__ import annotations

from typing import Iterator, Sequence

from torch import nn

from ..capture import StepGraph
from ..diagnostics import Finding
from ..host_tensors import HostTensor
from .gradient_paths import find_gradient_faults
from .narrowed_values import find_narrowing
from .operator_support import find_operator_faults, list_attention
from .step_effects import find_random_numbers, find_written_inputs
from .wide_state import find_wide_state

__all__ = ["find_step_faults"]


def find_step_faults(graph: StepGraph, model: nn.Module, hosts: Sequence[HostTensor]) -> Iterator[Finding]:
    """Yield what a captured step says about a port of `model`, whose tensors are `hosts`, beside its own findings."""
    yield from find_operator_faults(graph, attention=list_attention(model))
    # what no operator reads stays on the host
    read = {info.name for info, node in zip(graph.entering, graph.placeholders) if node.users}
    yield from find_wide_state([host for host in hosts if host.name in read])
    yield from find_narrowing(graph)
    yield from find_gradient_faults(graph)
    yield from find_written_inputs(graph)
    yield from find_random_numbers(graph)
