"""Running statistics that `forward` reads beside the batch normalisation that updates them: those from before it.

The operator says nowhere that it writes, so a device takes the updated values for the next run alone.
"""

from __future__ import annotations

from typing import List, Sequence

import torch

from ..diagnostics import Finding, Severity
from ..host_tensors import HostTensor
from .device_tensor import DeviceTensor
from .graph_flow import identify_memory, tensor_memory, written_nodes
from .operator_schema import operator_name
from .recording.recorder import Recorder
from .recording.result_shapes import result_shape

__all__ = ["read_statistics_before_updates"]

aten = torch.ops.aten


def read_statistics_before_updates(recorder: Recorder, state: Sequence[HostTensor]) -> None:
    """Let all that reads a buffer which batch normalisation updates read a copy from the start of the run.

    What is read after the update differs from plain PyTorch, and is reported. A buffer that `forward` writes to in
    another way as well is left as it is: that write is one that the device sees.
    """
    for host in state:
        tensor = recorder.device_of(host.tensor)
        updates = recorder.facts.writes_to(tensor)
        # views are users as well: nearly always there are none but the updates
        if not updates or tensor.node.users.keys() <= set(updates):
            continue
        if not all(_is_batch_norm_of(update, tensor.node) for update in updates):
            continue
        late = [node for node in _list_later_readers(updates, identify_memory(tensor.fake)) if _uses_value(node)]
        if not late:
            continue
        _copy_for_readers(recorder, tensor, updates)
        recorder.reports.add(_make_finding(host.name, late, updates))


def _is_batch_norm_of(node: torch.fx.Node, buffer: torch.fx.Node) -> bool:
    return buffer in written_nodes(node) and operator_name(node.target) == "batch_norm"


def _uses_value(node: torch.fx.Node) -> bool:
    """Tell whether a reader does more than copy a value for further updates, which overwrite what they do not use."""
    return node.target is not aten.clone.default or not all(_is_batch_norm_of(user, node) for user in node.users)


def _copy_for_readers(recorder: Recorder, tensor: DeviceTensor, updates: Sequence[torch.fx.Node]) -> None:
    first = next(node for node in recorder.graph.nodes if node.op != "placeholder")
    with recorder.graph.inserting_before(first):
        copy = recorder.graph.call_function(aten.clone.default, (tensor.node,))
    shape = result_shape(recorder.fake_mode, aten.clone.default, (tensor.fake,), {})
    copy.meta.update(val=shape, module_path="", place=None)
    # all readers, as one before the update may be a view that is used after it
    tensor.node.replace_all_uses_with(copy, lambda user: user is not copy and user not in updates)


def _list_later_readers(updates: Sequence[torch.fx.Node], memory: int) -> List[torch.fx.Node]:
    """List what uses `memory` after the first of `updates`, and is none of them itself."""
    nodes = list(updates[0].graph.nodes)
    later = [node for node in nodes[nodes.index(updates[0]) :] if node not in updates]
    return [node for node in later if any(tensor_memory(used) == memory for used in node.all_input_nodes)]


def _make_finding(name: str, late: Sequence[torch.fx.Node], updates: Sequence[torch.fx.Node]) -> Finding:
    # what is returned as it is has no line of its own
    places = (node.meta.get("place") for node in (*late, *updates))
    return Finding(
        "C046",
        severity=Severity.WARNING,
        message=f"`forward` reads `{name}` after batch normalisation has updated it",
        place=next((place for place in places if place is not None), None),
        label="the value is the one from before the update",
        notes=("on the device the next run is the first to see what the operator updates",),
        help=f"read `{name}` on the host after the call, or before the layer if the former value is meant",
    )
