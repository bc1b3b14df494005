"""Report what a step does besides computing its outputs: it writes to inputs, or draws random numbers.

The step checks run it.
"""

from __future__ import annotations

from typing import Dict, Iterator, List

import torch

from ..capture import StepGraph
from ..capture.graph_flow import is_random, tensor_memory, written_nodes
from ..diagnostics import Finding, join_names, say_number

__all__ = ["iter_random_numbers", "iter_written_inputs"]

_MOST_NAMES = 4


def iter_written_inputs(graph: StepGraph) -> Iterator[Finding]:
    """Yield C045 for each input that `forward` writes to, at the writing line."""
    if not graph.mutated_inputs:
        return
    first = len(graph.parameters) + len(graph.buffers)
    for index in sorted(graph.mutated_inputs):
        node = graph.placeholders[first + index]
        memory = tensor_memory(node)
        writers = [user for user in graph.graph.nodes if memory in map(tensor_memory, written_nodes(user))]
        yield Finding(
            "C045",
            message=f"`forward` writes to its input `{graph.inputs[index].name}`",
            place=writers[0].meta.get("place") if writers else None,
            label="the input is changed here",
            notes="in plain PyTorch the caller's tensor changes as well; on the device each call has its own copy",
            help="work on a copy, or use the form that returns a new tensor: `x = x + 1` instead of `x += 1`",
        )


def iter_random_numbers(graph: StepGraph) -> Iterator[Finding]:
    """Yield C042, once, for a step that draws random numbers, with the modules and their lines."""
    drawing = [node for node in graph.graph.nodes if is_random(node)]
    if not drawing:
        return
    by_operator: Dict[str, List[torch.fx.Node]] = {}
    for node in drawing:
        name = str(node.meta.get("operator", getattr(node.target, "__name__", node.target))).split(".")[0]
        by_operator.setdefault(name, []).append(node)
    modules = list(dict.fromkeys(str(node.meta.get("module_path") or "forward") for node in drawing))
    yield Finding(
        "C042",
        message=f"{say_number(len(drawing), 'operator')} of the step draw{'s' if len(drawing) == 1 else ''} random "
        f"numbers on the device: {join_names(by_operator, most=_MOST_NAMES)}",
        place=drawing[0].meta.get("place"),
        notes=(
            f"in {join_names(modules, most=_MOST_NAMES)}",
            "they come from the device's own stream: not from `torch.manual_seed`, and another one in each replica",
            "losses are not those of plain PyTorch number by number, but those of another seed",
        ),
        help=(
            "for runs that repeat each other: `PortOptions(seed=...)`",
            "to compare with plain PyTorch, set the rates to 0",
        ),
    )
