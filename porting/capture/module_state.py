"""A module's parameters and buffers, exchanged for device tensors while its `forward` is captured."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import combinations
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    MutableMapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, Place, Severity
from .device_tensor import DeviceTensor

__all__ = ["HostTensor", "host_tensors", "refuse_gradient_hooks", "refuse_shared_memory", "state_replaced"]


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
            for name, tensor in _registry(module, f"_{kind}s").items():
                if tensor is not None:
                    entry = found.setdefault(id(tensor), (kind, tensor, []))
                    entry[2].append(prefix + name)
    entries = [HostTensor(names[0], kind, tensor, tuple(names)) for kind, tensor, names in found.values()]
    return [e for e in entries if e.kind == "parameter"] + [e for e in entries if e.kind == "buffer"]


def refuse_gradient_hooks(hosts: Sequence[HostTensor], refuse: Callable[[CaptureError], None]) -> None:
    """Let `refuse` have C007 for each parameter with a gradient hook, which the device would not call."""
    for host in hosts:
        if host.tensor._backward_hooks or getattr(host.tensor, "_post_accumulate_grad_hooks", None):
            refuse(
                CaptureError.of(
                    "C007",
                    message=f"the parameter `{host.name}` has a gradient hook",
                    notes=("the device differentiates and updates without Python code on the way; no hook would run",),
                    help="remove the hook, and do what it does in `forward`: multiply by a mask, or detach a part",
                )
            )


def refuse_shared_memory(hosts: Sequence[HostTensor], changes: Callable[[HostTensor], bool]) -> None:
    """Raise CaptureError C016 when two registered tensors share memory and the device `changes` one of them.

    The device gives each its own memory, so that what happens to one would not be seen through the other.
    """
    by_storage: Dict[int, List[HostTensor]] = {}
    for host in hosts:
        # tensors without values have no memory to share
        if host.tensor.numel() and host.tensor.layout == torch.strided and not host.tensor.is_meta:
            by_storage.setdefault(host.tensor.untyped_storage().data_ptr(), []).append(host)
    for sharing in by_storage.values():
        for one, other in combinations(sharing, 2):
            if _overlap(one.tensor, other.tensor) and (changes(one) or changes(other)):
                raise _shared_memory_error(one, other)


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    (start, end), (other_start, other_end) = _extent(one), _extent(other)
    return start < other_end and other_start < end


def _extent(tensor: torch.Tensor) -> Tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    start = int(tensor.storage_offset()) * tensor.element_size()
    return start, start + (int(last) + 1) * tensor.element_size()


def _shared_memory_error(one: HostTensor, other: HostTensor) -> CaptureError:
    return CaptureError.of(
        "C016",
        message=f"the {one.kind} `{one.name}` and the {other.kind} `{other.name}` share memory",
        notes=("the device would give each its own, and they would drift apart",),
        help=(
            f"make them one object to tie them: assign the {one.kind} itself, not its `.data`",
            "or make them independent: `.clone()` one of them",
        ),
    )


def _registry(module: nn.Module, name: str) -> MutableMapping[str, Any]:
    """Return one of the dictionaries of `module`; scripted and traced modules keep theirs in C++."""
    own: Optional[MutableMapping[str, Any]] = module.__dict__.get(name)
    if own is None:
        own = getattr(module, name)
    return own


def _modules(model: nn.Module) -> List[Tuple[str, nn.Module]]:
    """List the distinct modules of `model` with the prefix of their names."""
    found: Dict[int, Tuple[str, nn.Module]] = {}
    _walk(model, "", found)
    return list(found.values())


def _walk(module: nn.Module, prefix: str, found: Dict[int, Tuple[str, nn.Module]]) -> None:
    if id(module) in found:
        return
    found[id(module)] = (prefix, module)
    for name, child in _registry(module, "_modules").items():
        if child is not None:
            _walk(child, f"{prefix}{name}.", found)


class _Saved(NamedTuple):
    prefix: str
    module: nn.Module
    registries: Dict[str, Tuple[MutableMapping[str, Any], Dict[str, torch.Tensor]]]
    attributes: Dict[str, Any]


@contextmanager
def state_replaced(
    model: nn.Module, replacements: Mapping[int, DeviceTensor], report: Callable[[Finding], None]
) -> Iterator[None]:
    """Put device tensors in the place of the host tensors (keyed by `id`) for the duration of the context.

    Raises CaptureError C006 at the end when `forward` removed or reassigned a registered tensor. Whatever happens, the
    modules have their own tensors again afterwards, and no attribute that is a device tensor; `report` gets a warning
    for each that `forward` left behind. The tensors of scripted modules stay where they are, in C++.
    """
    modules = [(prefix, m) for prefix, m in _modules(model) if not isinstance(m, torch.jit.ScriptModule)]
    saved = [_Saved(prefix, m, _registries(m), dict(m.__dict__)) for prefix, m in modules]
    # its parameters and buffers are the wrapper's
    saved += [_Saved("", behind, {}, dict(behind.__dict__)) for behind in _modules_behind(model)]
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
            _restore(entry)


def _modules_behind(model: nn.Module) -> List[nn.Module]:
    """Return the module that a wrapper runs without having it as a part: its attributes are the user's, too."""
    behind = getattr(model, "_porting_model", None)
    return [behind] if isinstance(behind, nn.Module) and not isinstance(behind, torch.jit.ScriptModule) else []


def _registries(module: nn.Module) -> Dict[str, Tuple[MutableMapping[str, Any], Dict[str, torch.Tensor]]]:
    found = {}
    for kind in ("parameter", "buffer"):
        registry = _registry(module, f"_{kind}s")
        found[kind] = (registry, dict(registry))
    return found


def _restore(entry: _Saved) -> None:
    for registry, originals in entry.registries.values():
        registry.clear()
        registry.update(originals)
    for name in _leftovers(entry):
        if name in entry.attributes:
            entry.module.__dict__[name] = entry.attributes[name]
        else:
            del entry.module.__dict__[name]


def _leftovers(entry: _Saved) -> Dict[str, object]:
    """Return the attributes that `forward` has bound to a device tensor, or to a tuple, list or dictionary with one."""
    # torch's recurrent layers list their own parameters anew in each `forward`
    is_torchs = "_flat_weights" if isinstance(entry.module, nn.RNNBase) else None
    return {
        name: value
        for name, value in entry.module.__dict__.items()
        if name != is_torchs and value is not entry.attributes.get(name) and _device_tensor_in(value) is not None
    }


def _device_tensor_in(value: object) -> Optional[DeviceTensor]:
    """Return the first device tensor in `value`, which may be nested: an LSTM's state is a tuple of two tensors."""
    if isinstance(value, DeviceTensor):
        return value
    items: Iterable[object] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, (tuple, list)):
        items = value
    return next((tensor for tensor in map(_device_tensor_in, items) if tensor is not None), None)


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
    leftovers = _leftovers(entry)
    for registry, originals in entry.registries.values():
        leftovers.update((name, value) for name, value in registry.items() if name not in originals)
    computed_by_hooks = _attributes_of_hooks(entry.module)
    for name, value in leftovers.items():
        if name not in computed_by_hooks:
            report(_leftover_finding(entry.prefix + name, value))


def _attributes_of_hooks(module: nn.Module) -> Set[str]:
    """Name the attributes that torch's own hooks compute anew before each `forward`: weight norm, pruning, ..."""
    hooks = module.__dict__["_forward_pre_hooks"].values()
    return {str(getattr(hook, "name", getattr(hook, "_tensor_name", ""))) for hook in hooks}


def _leftover_finding(name: str, value: object) -> Finding:
    return Finding(
        "C014",
        severity=Severity.WARNING,
        message=f"`forward` keeps a tensor in `self.{name}`, where it does not stay",
        place=_place_of(value),
        label="this value exists on the device only, and only during the call",
        notes=("the attribute is as it was before `forward` ran",),
        help="return the tensor from `forward`; what must live from call to call belongs in a registered buffer",
    )


def _place_of(value: object) -> Optional[Place]:
    tensor = _device_tensor_in(value)
    return tensor.node.meta.get("place") if tensor is not None else None
