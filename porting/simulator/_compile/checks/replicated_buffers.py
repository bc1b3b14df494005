"""Check of the buffers that replicas write: running statistics may differ, buffers that are broadcast may not."""

from __future__ import annotations

from typing import List, Sequence, Set

import torch

from ....capture import StepGraph
from ....capture.operator_schema import declared_written_arguments
from ...errors import native_error
from ...options import Options

__all__ = ["refuse_written_buffers"]


def refuse_written_buffers(graph: StepGraph, options: Options) -> None:
    """Raise `poptorch.Error` if `forward` itself writes into a buffer that replicas are to share.

    Like PopTorch this goes by what the operators say of themselves. The schema of batch norm does not say that it
    writes: each replica updates running statistics of its own, and the host gets the first one's.
    """
    replicated = options.replication_factor > options.input_group_size
    if not replicated or not options.broadcast_buffers or not graph.mutated_buffers:
        return
    written = _buffers_written_by_forward(graph)
    if written:
        raise native_error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using poptorch.Options.broadcastBuffers(False)."
            f" (modified: {_some_of(written)})"
        )


def _buffers_written_by_forward(graph: StepGraph) -> List[str]:
    written = _declared_writes(graph)
    first = len(graph.parameters)
    named = zip(graph.buffers, graph.placeholders[first:])
    return sorted(info.name for info, node in named if info.name in graph.mutated_buffers and _memory(node) & written)


def _declared_writes(graph: StepGraph) -> Set[int]:
    """Return the memory that operators change and say so; views share that of what they look at."""
    written: Set[int] = set()
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            for argument in declared_written_arguments(node.target, node.args, node.kwargs):
                written |= _memory(argument)
    return written


def _memory(node: object) -> Set[int]:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return {int(value.untyped_storage()._cdata)} if isinstance(value, torch.Tensor) else set()


def _some_of(names: Sequence[str]) -> str:
    """Name three, and count the others: each of a deep network's layers may have some."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{rest}"
