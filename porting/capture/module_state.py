"""A module's parameters and buffers, exchanged for device tensors while its `forward` is captured."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

import torch
from torch import nn

from ..diagnostics import CaptureError
from .device_tensor import DeviceTensor

__all__ = ["HostTensor", "host_tensors", "state_replaced"]


class HostTensor(NamedTuple):
    """A parameter or buffer of a module under its first name; `aliases` are all its names."""

    name: str
    kind: str
    tensor: torch.Tensor
    aliases: Tuple[str, ...]


def host_tensors(model: nn.Module) -> List[HostTensor]:
    """List the parameters, then the buffers of `model`, each once however many names it has.

    Tensors are read straight from the modules' dictionaries, so that no attribute hook of a wrapper runs.
    """
    found: Dict[int, Tuple[str, torch.Tensor, List[str]]] = {}
    for kind in ("parameter", "buffer"):
        for prefix, module in _modules(model):
            for name, tensor in module.__dict__[f"_{kind}s"].items():
                if tensor is not None:
                    entry = found.setdefault(id(tensor), (kind, tensor, []))
                    entry[2].append(prefix + name)
    entries = [HostTensor(names[0], kind, tensor, tuple(names)) for kind, tensor, names in found.values()]
    return [e for e in entries if e.kind == "parameter"] + [e for e in entries if e.kind == "buffer"]


def _modules(model: nn.Module) -> List[Tuple[str, nn.Module]]:
    """List the distinct modules of `model` with the prefix of their names."""
    found: Dict[int, Tuple[str, nn.Module]] = {}
    _walk(model, "", found)
    return list(found.values())


def _walk(module: nn.Module, prefix: str, found: Dict[int, Tuple[str, nn.Module]]) -> None:
    if id(module) in found:
        return
    found[id(module)] = (prefix, module)
    for name, child in module.__dict__["_modules"].items():
        if child is not None:
            _walk(child, f"{prefix}{name}.", found)


@contextmanager
def state_replaced(model: nn.Module, replacements: Mapping[int, DeviceTensor]) -> Iterator[None]:
    """Put device tensors in the place of the host tensors (keyed by `id`) for the duration of the context.

    Raises CaptureError C006 at the end when `forward` removed or reassigned a registered tensor; whatever happens, the
    modules have their own tensors again afterwards.
    """
    saved = []
    for prefix, module in _modules(model):
        for kind in ("parameter", "buffer"):
            registry = module.__dict__[f"_{kind}s"]
            saved.append((prefix, module, kind, registry, dict(registry)))
    try:
        for _prefix, _module, _kind, registry, originals in saved:
            registry.update({name: replacements[id(t)] for name, t in originals.items() if t is not None})
        yield
        for prefix, module, kind, registry, originals in saved:
            _refuse_changes(prefix, module, kind, registry, originals, replacements)
    finally:
        for _prefix, _module, _kind, registry, originals in saved:
            registry.clear()
            registry.update(originals)


def _refuse_changes(
    prefix: str,
    module: nn.Module,
    kind: str,
    registry: Mapping[str, object],
    originals: Mapping[str, torch.Tensor],
    replacements: Mapping[int, DeviceTensor],
) -> None:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return
    for name, original in originals.items():
        if original is None:
            continue
        full_name = prefix + name
        current = registry.get(name)
        if current is not replacements[id(original)]:
            raise _state_error(kind, full_name, current)


def _state_error(kind: str, name: str, current: object) -> CaptureError:
    if current is None:
        change, advice = "removed from", ""
    else:
        change = "reassigned within"
        advice = (
            f" This is not supported. Consider using self.{name}.copy_(src) to copy data from a source tensor, where "
            "src is the name of the source tensor."
        )
    place = current.node.meta.get("place") if isinstance(current, DeviceTensor) else None
    return CaptureError.of(
        "C006",
        message=f"{kind.title()} {name} is {change} the model when calling the forward method.{advice}",
        place=place,
        label="the new value is computed here" if place else "",
        help=f"write into the {kind} in place: `self.{name}.copy_(new_value)`",
    )
