"""A module's parameters and buffers, exchanged for device tensors while its `forward` is captured."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Mapping, MutableMapping, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, Place
from ..host_tensors import registry_of, walk_modules
from ..module_attributes import attributes_kept, leftover_finding, tensor_in
from .device_tensor import DeviceTensor

__all__ = ["state_replaced"]


class _Saved(NamedTuple):
    prefix: str
    module: nn.Module
    registries: Dict[str, Tuple[MutableMapping[str, Any], Dict[str, torch.Tensor]]]


@contextmanager
def state_replaced(
    model: nn.Module, replacements: Mapping[int, DeviceTensor], report: Callable[[Finding], None]
) -> Iterator[None]:
    """Put device tensors in the place of the host tensors (keyed by `id`) for the duration of the context.

    Raises CaptureError C006 at the end when `forward` removed or reassigned a registered tensor. Whatever happens, the
    modules have their own tensors again afterwards, and no attribute that is a device tensor; `report` gets a warning
    for each that `forward` left behind. The tensors of scripted modules stay where they are, in C++.
    """
    modules = [(prefix, m) for prefix, m in walk_modules(model) if not isinstance(m, torch.jit.ScriptModule)]
    saved = [_Saved(prefix, m, _list_registries(m)) for prefix, m in modules]
    with attributes_kept(model, is_device_tensor=_is_device_tensor, place_of=_place_of_leftover, report=report):
        try:
            for entry in saved:
                for registry, originals in entry.registries.values():
                    registry.update({name: replacements[id(t)] for name, t in originals.items() if t is not None})
            yield
            for entry in saved:
                _refuse_changes(entry, replacements)
                _report_leftovers(entry, report)
        finally:
            for entry in saved:
                for registry, originals in entry.registries.values():
                    registry.clear()
                    registry.update(originals)


def _is_device_tensor(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DeviceTensor)


def _place_of_leftover(_module: nn.Module, _name: str, tensor: torch.Tensor) -> Optional[Place]:
    return _place_of(tensor)


def _list_registries(module: nn.Module) -> Dict[str, Tuple[MutableMapping[str, Any], Dict[str, torch.Tensor]]]:
    found = {}
    for kind in ("parameter", "buffer"):
        registry = registry_of(module, f"_{kind}s")
        found[kind] = (registry, dict(registry))
    return found


def _refuse_changes(entry: _Saved, replacements: Mapping[int, DeviceTensor]) -> None:
    if isinstance(entry.module, nn.modules.batchnorm._BatchNorm):
        return
    for kind, (registry, originals) in entry.registries.items():
        for name, original in originals.items():
            current = registry.get(name)
            if original is not None and current is not replacements[id(original)]:
                raise _state_error(kind, entry.prefix + name, current)


def _state_error(kind: str, name: str, current: object) -> CaptureError:
    if current is None:
        change, advice = "removed from", ""
    else:
        change = "reassigned within"
        advice = (
            f" This is not supported. Consider using self.{name}.copy_(src) to copy data from a source tensor, where "
            "src is the name of the source tensor."
        )
    place = _place_of(current)
    return CaptureError.of(
        "C006",
        message=f"{kind.title()} {name} is {change} the model when calling the forward method.{advice}",
        place=place,
        label="the new value is computed here" if place else "",
        help=f"write into the {kind} in place: `self.{name}.copy_(new_value)`",
    )


def _report_leftovers(entry: _Saved, report: Callable[[Finding], None]) -> None:
    """Report the device's tensors that `forward` has registered anew."""
    for registry, originals in entry.registries.values():
        for name, value in registry.items():
            if name not in originals:
                report(leftover_finding(entry.prefix + name, _place_of(value)))


def _place_of(value: object) -> Optional[Place]:
    tensor = tensor_in(value, _is_device_tensor)
    return tensor.node.meta.get("place") if isinstance(tensor, DeviceTensor) else None
