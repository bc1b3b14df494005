"""Parameters and buffers that are constants on the device: those of integers and of truth values.

PopART has no variables of such types. They enter the program as constants, so that what `forward` writes into one lasts
for a micro-batch: the next one, and the host, see the value that it had at compilation.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import nn

from ..diagnostics import Finding, Severity
from ..host_tensors import HostTensor
from .graph_flow import written_nodes
from .plain_values import dtype_name
from .recording.recorder import Recorder

__all__ = ["is_variable", "report_lost_writes", "write_copies_of_constants"]

aten = torch.ops.aten


def is_variable(tensor: torch.Tensor) -> bool:
    """Tell whether a parameter or buffer like `tensor` keeps on the device what is written into it.

    >>> is_variable(torch.tensor(0.5)), is_variable(torch.tensor(3)), is_variable(torch.tensor(True))
    (True, False, False)
    """
    return tensor.is_floating_point()


def write_copies_of_constants(recorder: Recorder, state: Sequence[HostTensor]) -> None:
    """Let operators that write to a constant of the graph work on a copy, made anew for each micro-batch.

    Writes that nothing reads are left out: BatchNorm counts its batches in an integer.
    """
    constants = [node for node, _value in recorder.constants]
    constants += [recorder.device_of(host.tensor).node for host in state if not is_variable(host.tensor)]
    # before all operators, so that each run of the graph begins with the constant as it is
    first = next((node for node in recorder.graph.nodes if node.op != "placeholder"), None)
    written = recorder.facts.find_written_nodes() if constants else frozenset()
    for node in constants:
        if first is None or node not in written:
            continue
        users = list(node.users)
        # nobody reads what they make of the constant, and the constant is all that they write to
        if all(not user.users and written_nodes(user) == [node] for user in users):
            for user in users:
                first = first.next if user is first else first
                recorder.graph.erase_node(user)
            continue
        with recorder.graph.inserting_before(first):
            copy = recorder.graph.call_function(aten.clone.default, (node,))
        copy.meta.update(node.meta, module_path="", place=None)
        node.replace_all_uses_with(copy)
        # the copy itself was one of the users
        copy.args = (node,)
        first = copy


def report_lost_writes(recorder: Recorder, model: nn.Module, state: Sequence[HostTensor]) -> None:
    """Report the buffers of integers that `forward` writes into; BatchNorm's count of batches steers nothing."""
    norms = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase))
    counts = [id(norm.num_batches_tracked) for norm in norms]
    for host in state:
        writes = recorder.facts.writes_to(recorder.device_of(host.tensor))
        if not writes or is_variable(host.tensor) or id(host.tensor) in counts:
            continue
        places = (write.meta.get("place") for write in writes)
        dtype = dtype_name(host.tensor.dtype)
        name = f"{dtype} {host.kind} `{host.name}`"
        recorder.reports.add(
            Finding(
                "C019",
                severity=Severity.WARNING,
                message=f"what `forward` writes into the {name} is lost after each micro-batch",
                place=next((place for place in places if place is not None), None),
                label="a constant of the graph is written here",
                notes=(f"the device has no variables of {dtype}: the {host.kind} stays as it was at compilation",),
                help=f"make it a {host.kind} of float32, or count on the host, between calls",
            )
        )
