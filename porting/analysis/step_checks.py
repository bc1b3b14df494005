"""All checks of a captured step in one walk: what a first compilation refuses, and what a preflight tells besides."""

from __future__ import annotations

from typing import Iterator, List, Sequence

from torch import nn

from ..capture import StepGraph
from ..diagnostics import Finding, PortingError, refuse
from ..host_tensors import HostTensor
from .gradient_paths import find_gradient_faults
from .narrowed_values import find_narrowing, find_wide_state
from .operator_support import find_operator_faults
from .step_effects import find_random_numbers, find_written_inputs

__all__ = ["find_step_faults", "refuse_wide_state"]


def find_step_faults(graph: StepGraph, model: nn.Module, hosts: Sequence[HostTensor]) -> Iterator[Finding]:
    """Yield what a captured step says about a port of `model`, whose tensors are `hosts`, beside its own findings."""
    attention = {name for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)}
    yield from find_operator_faults(graph, attention=attention)
    yield from find_wide_state(hosts)
    yield from find_narrowing(graph)
    yield from find_gradient_faults(graph)
    yield from find_written_inputs(graph)
    yield from find_random_numbers(graph)


def refuse_wide_state(hosts: Sequence[HostTensor]) -> None:
    """Raise PortingError C043 for tensors of a model with values that the device cannot hold; all of them in one."""
    found: List[Finding] = list(find_wide_state(hosts))
    if found:
        others = [str(finding.message) for finding in found[1:]]
        first = found[0]
        refuse(
            PortingError.of(
                first.code, message=first.message, notes=(*first.notes, *others), help=first.help, place=first.place
            )
        )
