"""A module's parameters and buffers, exchanged for device tensors while its `forward` is captured."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, MutableMapping, NamedTuple, Optional

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, Place
from ..host_tensors import read_registry, walk_modules
from ..module_attributes import find_tensor, keep_attributes, make_leftover_finding
from .device_tensor import DeviceTensor

__all__ = ["replace_state"]


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
        place_of=lambda _module, _name, tensor: _find_place(tensor),
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
    if isinstance(saved.module, nn.modules.batchnorm._BatchNorm):
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
        raise CaptureError.of(
            "C006",
            message=f"{saved.kind.title()} {saved.prefix + name} is {change} the model when calling the forward method."
            + advice,
            place=place,
            label="the new value is computed here" if place else "",
            help=f"write into the {saved.kind} in place: `self.{saved.prefix + name}.copy_(new_value)`",
        )


def _find_place(value: object) -> Optional[Place]:
    """Return the line that computed the first device tensor in `value`."""
    tensor = find_tensor(value, lambda item: isinstance(item, DeviceTensor))
    return tensor.node.meta.get("place") if isinstance(tensor, DeviceTensor) else None
