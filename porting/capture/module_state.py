"""A module's parameters and buffers, exchanged for device tensors while its `forward` is captured.

Those of integers and of truth values are constants on the device: PopART has no variables of such types. What
`forward` writes into one lasts for a micro-batch: the next one, and the host, see the value that it had at compilation.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, MutableMapping, NamedTuple, Optional, Sequence

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, Place, Severity, find_assignment, refuse
from ..host_tensors import HostTensor, read_registry, walk_modules
from ..module_attributes import find_tensor, keep_attributes, make_leftover_finding
from ..torch_insides.modules import BATCH_NORMS, NORMS_WITH_STATE
from .device_tensor import DeviceTensor
from .graph_flow import written_nodes
from .plain_values import dtype_name
from .recording.recorder import Recorder

__all__ = ["is_variable", "replace_state", "report_lost_writes", "write_copies_of_constants"]


class _Registry(NamedTuple):
    """The parameters or the buffers of one module, and what was in there before."""

    kind: str
    prefix: str
    module: nn.Module
    entries: MutableMapping[str, Any]
    originals: Dict[str, Optional[torch.Tensor]]


@contextmanager
def replace_state(
    model: nn.Module, device_of: Callable[[torch.Tensor], DeviceTensor], report: Callable[[Finding], None]
) -> Iterator[None]:
    """Put device tensors in the place of the host tensors that they stand for, for the duration of the context.

    Raises CaptureError C006 at the end when `forward` removed or reassigned a registered tensor. Whatever happens, the
    modules have their own tensors again afterwards, and no attribute that is a device tensor; `report` gets a warning
    for each that `forward` left behind. The tensors of scripted modules stay where they are, in C++.
    """
    registries = []
    for prefix, module in walk_modules(model):
        if not isinstance(module, torch.jit.ScriptModule):
            for kind in ("parameter", "buffer"):
                entries = read_registry(module, f"_{kind}s")
                registries.append(_Registry(kind, prefix, module, entries, dict(entries)))
    with keep_attributes(
        model,
        is_device_tensor=lambda tensor: isinstance(tensor, DeviceTensor),
        place_of=lambda module, name, tensor: find_assignment(type(module), name) or _find_place(tensor),
        report=report,
    ):
        try:
            for saved in registries:
                # straight into the dictionaries: `setattr` of a module wants parameters, and runs the user's hooks
                saved.entries.update({name: device_of(t) for name, t in saved.originals.items() if t is not None})
            yield
            for saved in registries:
                _refuse_changes(saved, device_of)
                for name, value in saved.entries.items():
                    if name not in saved.originals:
                        report(make_leftover_finding(saved.prefix + name, _find_place(value)))
        finally:
            for saved in registries:
                # what `forward` added goes, and the order of the entries is as it was
                saved.entries.clear()
                saved.entries.update(saved.originals)


def _refuse_changes(saved: _Registry, device_of: Callable[[torch.Tensor], DeviceTensor]) -> None:
    # BatchNorm assigns its count of batches anew, which steers nothing
    if isinstance(saved.module, BATCH_NORMS):
        return
    for name, original in saved.originals.items():
        current = saved.entries.get(name)
        if original is None or current is device_of(original):
            continue
        change, advice = "removed from", ""
        if current is not None:
            change = "reassigned within"
            advice = (
                f" This is not supported. Consider using self.{saved.prefix + name}.copy_(src) to copy data from a "
                "source tensor, where src is the name of the source tensor."
            )
        place = _find_place(current)
        helps = [f"write into the {saved.kind} in place: `self.{saved.prefix + name}.copy_(new_value)`"]
        if isinstance(current, torch.Tensor) and current.shape != original.shape:
            shapes = f"{list(original.shape)}, and {list(current.shape)} here"
            helps = [f"give the {saved.kind} its shape before, which is {shapes}: `with torch.no_grad(): model(x)`"]
        error = CaptureError.of(
            "C006",
            message=f"{saved.kind.title()} {saved.prefix + name} is {change} the model when calling the forward method."
            + advice,
            place=place,
            label="the new value is computed here" if place else "",
            help=helps,
        )
        refuse(error)


def _find_place(value: object) -> Optional[Place]:
    """Return the line that computed the first device tensor in `value`."""
    tensor = find_tensor(value, lambda item: isinstance(item, DeviceTensor))
    return tensor.node.meta.get("place") if isinstance(tensor, DeviceTensor) else None


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
    written = recorder.facts.collect_written_nodes() if constants else frozenset()
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
    norms = (module for module in model.modules() if isinstance(module, NORMS_WITH_STATE))
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
