"""List the parameters and buffers of a module, each once, and check which of them a device cannot have.

Adapters, captures, ports and the simulator use it.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import combinations
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    MutableMapping,
    NamedTuple,
    Sequence,
    Tuple,
)

import numpy as np
import torch
from torch import nn

from .diagnostics import CaptureError, refuse
from .torch_insides.modes import DisableTorchFunctionSubclass
from .torch_insides.tensors import GRADIENT_HOOKS, TENSOR_BASE, count_storage_uses, identify_storage

__all__ = [
    "HeldBuffer",
    "HostTensor",
    "are_same_bytes",
    "as_registered",
    "has_alias",
    "has_name",
    "host_tensors",
    "iter_gradient_hooks",
    "list_constants",
    "list_held_buffers",
    "read_registry",
    "refuse_shared_memory",
    "walk_modules",
]


# read without the attribute hooks that a backend puts on the tensors it owns
_KIND = (TENSOR_BASE.shape.__get__, TENSOR_BASE.dtype.__get__)
_MOST_NUMBERS = 1 << 16
_NUMBERS_OF_LARGE = 1 << 12
_MOST_TENSORS = 64
_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
    modules = walk_modules(model)
    for kind in ("parameter", "buffer"):
        for prefix, module in modules:
            for name, tensor in read_registry(module, f"_{kind}s").items():
                if tensor is not None:
                    found.setdefault(id(tensor), (kind, tensor, []))[2].append(prefix + name)
    entries = [HostTensor(names[0], kind, tensor, tuple(names)) for kind, tensor, names in found.values()]
    return [e for e in entries if e.kind == "parameter"] + [e for e in entries if e.kind == "buffer"]


def are_same_bytes(tensor: torch.Tensor, copied: torch.Tensor) -> bool:
    """Compare bit by bit: NaN equals NaN, and -0.0 differs from 0.0."""
    if tensor.dtype != copied.dtype or tensor.shape != copied.shape:
        return False
    kind = _OF_SIZE.get(tensor.element_size()) if tensor.is_floating_point() else None
    plain = tensor.detach()
    return torch.equal(plain, copied) if kind is None else torch.equal(plain.view(kind), copied.view(kind))


class HeldBuffer(NamedTuple):
    """A buffer, and the dictionary of the module that holds it by a name."""

    registry: MutableMapping[str, Any]
    name: str
    tensor: torch.Tensor

    def is_followed_by(self, now: Any) -> bool:
        """Tell whether a device can continue with the tensor `now` instead of this one: they differ in values alone."""
        if type(now) not in (torch.Tensor, type(self.tensor)):
            return False
        with DisableTorchFunctionSubclass():
            if torch.Tensor.is_inference(now) or not torch.Tensor.is_floating_point(now):
                return False  # integers are constants on the device
            return all(read(now) == read(self.tensor) for read in _KIND)


def list_held_buffers(modules: Iterable[nn.Module]) -> List[HeldBuffer]:
    """List the buffers of `modules` with one name; one that is exchanged loses its tie to its other names."""
    registries = [
        read_registry(module, "_buffers") for module in modules if not isinstance(module, torch.jit.ScriptModule)
    ]
    held = [HeldBuffer(registry, name, each) for registry in registries for name, each in registry.items()]
    uses = Counter(id(buffer.tensor) for buffer in held)
    single = [buffer for buffer in held if buffer.tensor is not None and uses[id(buffer.tensor)] == 1]
    return [buffer for buffer in single if not buffer.tensor.is_inference()]


def iter_gradient_hooks(hosts: Sequence[HostTensor]) -> Iterator[CaptureError]:
    """Yield C007 for each parameter with a gradient hook, which the device would not call."""
    for host in hosts:
        has_hooks = any(hooks_of(host.tensor) for hooks_of in GRADIENT_HOOKS)
        if host.kind == "parameter" and has_hooks:
            yield CaptureError.of(
                "C007",
                message=f"the parameter `{host.name}` has a gradient hook",
                notes="the device differentiates and updates without Python code on the way; no hook would run",
                help="remove the hook, and do what it does in `forward`: multiply by a mask, or detach a part",
            )


def refuse_shared_memory(hosts: Sequence[HostTensor], changes: Callable[[HostTensor], bool]) -> None:
    """Raise CaptureError C016 when two registered tensors share memory and the device `changes` one of them.

    The device gives each its own memory, so that a change of one would not be visible in the other.
    """
    by_storage: Dict[int, List[HostTensor]] = {}
    for host in hosts:
        if host.tensor.numel() and host.tensor.layout == torch.strided:
            storage = host.tensor.untyped_storage()
            # tensors without values have no memory, but the same storage where they would share it
            memory = identify_storage(storage) if storage.device.type == "meta" else storage.data_ptr()
            by_storage.setdefault(memory, []).append(host)
    for one, other in (pair for sharing in by_storage.values() for pair in combinations(sharing, 2)):
        (start, end), (other_start, other_end) = _find_extent(one.tensor), _find_extent(other.tensor)
        if start < other_end and other_start < end and (changes(one) or changes(other)):
            error = CaptureError.of(
                "C016",
                message=f"the {one.kind} `{one.name}` and the {other.kind} `{other.name}` share memory",
                notes=("the device would give each its own, and they would drift apart",),
                help=(
                    f"make them one object to tie them: assign the {one.kind} itself, not its `.data`",
                    "or make them independent: `.clone()` one of them",
                ),
            )
            refuse(error)


def has_alias(tensor: torch.Tensor) -> bool:
    """Tell whether something else refers to the memory of `tensor`: a view, an array, a value of a `state_dict`.

    Returns False where torch does not report it.
    """
    if count_storage_uses is None or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return _count_references(tensor) != _WITHOUT_ALIAS


def _count_references(tensor: torch.Tensor) -> Tuple[int, int]:
    """Count the references to the memory of `tensor`: tensors, and owners of its Python object."""
    storage = tensor.untyped_storage()
    assert count_storage_uses is not None
    return count_storage_uses(identify_storage(storage)), sys.getrefcount(storage)


_WITHOUT_ALIAS = None if count_storage_uses is None else _count_references(torch.empty(1))


def list_constants(value: object) -> List[torch.Tensor]:
    """List the tensors and arrays that a value is, or that a list or tuple holds, as possible constants."""
    held = value if isinstance(value, (list, tuple)) and len(value) <= _MOST_TENSORS else (value,)
    return [_sample(tensor) for tensor in map(_view_array, held) if _is_constant(tensor)]


def _view_array(value: object) -> Any:
    """Return a tensor with the memory of an array, which may be written to; other values are returned unchanged."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    try:
        return torch.from_numpy(value)
    except (TypeError, ValueError):  # of texts or objects, or one that is read backwards
        return value


def _is_constant(value: object) -> bool:
    """Tell whether a value is a tensor that may have become a constant of the step."""
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter) or value.is_inference():
        return False
    return value.layout == torch.strided and (value.numel() <= _MOST_NUMBERS or value.is_contiguous())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of a few numbers of a large tensor; its version is that of all of it."""
    step = -(-tensor.numel() // _NUMBERS_OF_LARGE)
    return tensor if tensor.numel() <= _MOST_NUMBERS else tensor.detach().view(-1)[::step]


def _find_extent(tensor: torch.Tensor) -> Tuple[int, int]:
    """Return the first byte of a tensor in its storage, and the first one after it."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    start = int(tensor.storage_offset()) * tensor.element_size()
    return start, start + (int(last) + 1) * tensor.element_size()


def read_registry(module: nn.Module, name: str) -> MutableMapping[str, Any]:
    """Return one of the dictionaries of `module`; scripted and traced modules keep theirs in C++."""
    registry: MutableMapping[str, Any] = module.__dict__[name] if name in module.__dict__ else getattr(module, name)
    return registry


def has_name(module: nn.Module, name: str) -> bool:
    """Tell whether a module has an attribute of this name, or the name is none of the user's."""
    registries = [read_registry(module, registry) for registry in ("_parameters", "_buffers", "_modules")]
    return any(name in names for names in (*registries, vars(module))) or name.startswith(("__", "_porting"))


class _Registered(NamedTuple):
    """A module, and the parameters and buffers that it had."""

    module: nn.Module
    parameters: Dict[str, Any]
    buffers: Dict[str, Any]


def _collect_registered(model: nn.Module) -> Dict[str, _Registered]:
    """Return the tensors of the modules of `model` by the prefix of their names; scripted ones are left out."""
    return {
        prefix: _Registered(module, dict(read_registry(module, "_parameters")), dict(read_registry(module, "_buffers")))
        for prefix, module in walk_modules(model)
        if not isinstance(module, torch.jit.ScriptModule)
    }


def as_registered(model: nn.Module) -> Callable[[], ContextManager[None]]:
    """Return a context in which `model` has the parameters that it has now, and the buffers of modules exchanged since.

    A device knows weights by their names: a tensor that replaced another must not get the other's values.
    """
    return functools.partial(_as_before, model, _collect_registered(model))


@contextmanager
def _as_before(model: nn.Module, before: Mapping[str, _Registered]) -> Iterator[None]:
    exchanged: List[Tuple[MutableMapping[str, Any], str, Any]] = []
    for prefix, module in walk_modules(model):
        held = before.get(prefix)
        if held is not None:
            tables = [("_parameters", held.parameters), ("_buffers", {} if module is held.module else held.buffers)]
            for table, former in ((read_registry(module, name), former) for name, former in tables if former):
                names = [name for name in table if former.get(name) is not None and table[name] is not former[name]]
                exchanged += [(table, name, table[name]) for name in names]
                table.update({name: former[name] for name in names})
    try:
        yield
    finally:
        for table, name, tensor in exchanged:
            table[name] = tensor


def walk_modules(model: nn.Module) -> List[Tuple[str, nn.Module]]:
    """List the distinct modules of `model` with the prefix of their names."""
    found: Dict[int, Tuple[str, nn.Module]] = {}

    def walk(module: nn.Module, prefix: str) -> None:
        if id(module) not in found:
            found[id(module)] = (prefix, module)
            for name, child in read_registry(module, "_modules").items():
                if child is not None:
                    walk(child, f"{prefix}{name}.")

    walk(model, "")
    return list(found.values())
