"""Compare the modules, parameters, modes and hooks of a model with those that its step was compiled for.

`CompiledIn` asks share by share, in every call.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import torch
from torch import nn
from torch.jit import ScriptModule

from ..diagnostics import join_names
from ..host_tensors import host_tensors, list_held_buffers, read_registry
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.modules import (
    EVERY_BACKWARD_HOOK,
    EVERY_BACKWARD_PRE_HOOK,
    EVERY_FORWARD_HOOK,
    EVERY_FORWARD_PRE_HOOK,
    read_backward_hooks,
    read_backward_pre_hooks,
    read_forward_hooks,
    read_forward_pre_hooks,
)
from ..torch_insides.tensors import GRADIENT_HOOKS, TENSOR_BASE
from .port import Port, PortFindings

__all__ = ["ModelStructure", "StructureShare", "requires_grad"]

# a module takes a microsecond, a parameter 0.3
_MODULES_A_CALL = 8
_PARAMETERS_A_CALL = 8
_REGISTRIES = {"_modules": "module", "_parameters": "parameter", "_buffers": "buffer"}
_HOOKS = {
    "forward": (read_forward_hooks, read_forward_pre_hooks),
    "backward": (read_backward_hooks, read_backward_pre_hooks),
}
_EVERY_HOOK = (EVERY_FORWARD_HOOK, EVERY_FORWARD_PRE_HOOK, EVERY_BACKWARD_HOOK, EVERY_BACKWARD_PRE_HOOK)
# read without the attribute hooks that a backend puts on the tensors it owns: those would fetch the weights each time
requires_grad = TENSOR_BASE.requires_grad.__get__


class _Module(NamedTuple):
    """A module as it was: what its registries hold, how many hooks it has, its mode, and a `forward` of its own."""

    prefix: str
    module: nn.Module
    kind: type
    held: Dict[str, Dict[str, Any]]
    hooks: Dict[str, int]
    training: bool
    forward: Any


class _Tensor(NamedTuple):
    """A parameter as it was."""

    name: str
    tensor: torch.Tensor
    is_trained: bool
    has_hooks: bool


class StructureShare(NamedTuple):
    """A part of a model, and what is compared of it by calls of C alone, as each call of a port does so.

    `empty` are registries and hooks of modules that hold nothing, `filled` the others, with copies. A comparison of
    dictionaries takes tensors of one equal number for the same: those are `single`, with what holds them and by what
    name, and so is a `forward` of a module's own. `attributes` are those of modules, `num_attributes` how many there
    are, `moded` those with a mode that counts.
    """

    empty: List[Any]
    filled: List[Any]
    copies: List[Any]
    single: List[Tuple[Any, str, Any]]
    modules: Sequence[nn.Module]
    kinds: List[type]
    attributes: List[Dict[str, Any]]
    num_attributes: int
    moded: List[Dict[str, Any]]
    modes: List[bool]
    tensors: Sequence[torch.Tensor]
    trained: List[bool]
    hookless: List[torch.Tensor]


class ModelStructure:
    """The modules and parameters of a port as they were compiled; each change is said once (D005).

    It is said again after it was taken back. A step that `trains` depends on gradients, one that `keeps_modes` on the
    train and eval modes and on hooks of the backward pass.
    """

    def __init__(
        self,
        port: Port,
        findings: PortFindings,
        modules: Sequence[Tuple[str, nn.Module]],
        *,
        trains: bool,
        keeps_modes: bool,
    ) -> None:
        """Take everything as it is now for what was compiled."""
        self._findings = findings
        self._keeps_modes = keeps_modes
        self._hooks = _HOOKS if keeps_modes else {"forward": _HOOKS["forward"]}
        self._modules = [
            self._read_module(prefix, module) for prefix, module in modules if not isinstance(module, ScriptModule)
        ]
        hosts = [host for host in host_tensors(port.wrapped) if trains and host.kind == "parameter"]
        self._tensors = [_read_tensor(host.name, host.tensor) for host in hosts]
        self._buffers = {id(held.tensor): held for held in list_held_buffers(module for _prefix, module in modules)}
        self._num_hooks = _count_every_hook()
        self._said: Set[Tuple[str, str]] = set()

    def _read_module(self, prefix: str, module: nn.Module) -> _Module:
        return _Module(
            prefix,
            module,
            type(module),
            {kind: dict(read_registry(module, registry)) for registry, kind in _REGISTRIES.items()},
            {kind: sum(len(read(module)) for read in readers) for kind, readers in self._hooks.items()},
            module.training,
            _read_forward(module),
        )

    # -- looking -------------------------------------------------------------------------------------------------------

    def make_shares(self) -> List[StructureShare]:
        """Cut the model as it is now into shares, which calls compare."""
        count = max(-(-len(self._modules) // _MODULES_A_CALL), -(-len(self._tensors) // _PARAMETERS_A_CALL), 1)
        modules, tensors = [each.module for each in self._modules], [each.tensor for each in self._tensors]
        return [self._make_share(modules[turn::count], tensors[turn::count]) for turn in range(count)]

    def _make_share(self, modules: Sequence[nn.Module], tensors: Sequence[torch.Tensor]) -> StructureShare:
        registries: List[Any] = [read_registry(module, name) for module in modules for name in _REGISTRIES]
        hooks = [read(module) for module in modules for readers in self._hooks.values() for read in readers]
        tables: List[Any] = [*registries, *hooks, *_EVERY_HOOK]
        items = [(registry, name, value) for registry in registries for name, value in registry.items()]
        attributes = [vars(module) for module in modules]
        moded = attributes if self._keeps_modes else []
        forwards = [(each, "forward", each["forward"]) for each in attributes if "forward" in each]
        return StructureShare(
            empty=[table for table in tables if not table],
            filled=[table for table in tables if table],
            copies=[table.copy() for table in tables if table],
            single=[*forwards, *(item for item in items if isinstance(item[2], torch.Tensor) and item[2].numel() == 1)],
            modules=modules,
            kinds=[*map(type, modules)],
            attributes=attributes,
            num_attributes=sum(map(len, attributes)),
            moded=moded,
            modes=[each["training"] for each in moded],
            tensors=tensors,
            trained=[*map(_is_trained, tensors)],
            hookless=[tensor for tensor in tensors if not _has_hooks(tensor)],
        )

    # -- saying --------------------------------------------------------------------------------------------------------

    def say_changes(self) -> None:
        """Look at everything, and say what is new."""
        found: Dict[str, List[str]] = {}
        for what, name in self._iter_changes():
            found.setdefault(what, []).append(name)
        for what, names in found.items():
            new = [name for name in names if (what, name) not in self._said]
            if new:
                self._findings.say_it_is_compiled_in(f"{what} after the step was compiled ({join_names(new, most=1)})")
        # what is again as it was compiled may change again
        self._said = {(what, name) for what, names in found.items() for name in names}

    def _iter_changes(self) -> Iterator[Tuple[str, str]]:
        """Yield what differs from the compiled model, and where."""
        for tensor in self._tensors:
            now = _read_tensor(tensor.name, tensor.tensor)
            if now.is_trained != tensor.is_trained:
                yield "`requires_grad` changed", tensor.name
            if now.has_hooks and not tensor.has_hooks:
                yield "a gradient hook was added", tensor.name
        if _count_every_hook() != self._num_hooks:
            yield "a hook of all modules was added or removed", "torch.nn.modules.module"
        for module in self._modules:
            yield from self._iter_changes_of(module, self._read_module(module.prefix, module.module))

    def _iter_changes_of(self, before: _Module, now: _Module) -> Iterator[Tuple[str, str]]:
        name = before.prefix[:-1] or type(before.module).__name__
        for kind, count in before.hooks.items():
            if now.hooks[kind] != count:
                change = "added to" if now.hooks[kind] > count else "removed from"
                yield f"a {kind} hook was {change} a module", name
        if self._keeps_modes and now.training != before.training:
            yield "modules changed between train and eval mode", name
        if now.kind is not before.kind:
            yield "the class of a module was exchanged", name
        if now.forward is not before.forward:
            yield "`forward` of a module was exchanged", name
        for kind, held in before.held.items():
            for key in {**held, **now.held[kind]}:
                is_there = key in held, key in now.held[kind]
                if is_there != (True, True):
                    yield f"a {kind} was {'removed' if is_there[0] else 'added'}", f"{before.prefix}{key}"
                elif held[key] is not now.held[kind][key] and not self._is_followed(held[key], now.held[kind][key]):
                    yield f"a {kind} was exchanged", f"{before.prefix}{key}"

    def _is_followed(self, before: object, now: object) -> bool:
        """Tell whether the next call sends a buffer that took another's place, as it sends written weights."""
        return id(before) in self._buffers and self._buffers[id(before)].is_followed_by(now)


def _read_forward(module: nn.Module) -> Any:
    """Return the `forward` that a module has of its own; not that by which a trainer's calls are routed to a port."""
    forward = vars(module).get("forward")
    if forward is not None and type(forward).__module__.startswith("porting."):
        forward = forward.original
        return None if getattr(forward, "__func__", None) is getattr(type(module), "forward", None) else forward
    return forward


def _count_every_hook() -> int:
    """Count the hooks of all modules, without those of a capture in another thread."""
    hooks = [hook for registry in _EVERY_HOOK for hook in registry.values()]
    return sum(not str(getattr(hook, "__module__", "")).startswith("porting.") for hook in hooks)


def _read_tensor(name: str, tensor: torch.Tensor) -> _Tensor:
    return _Tensor(name, tensor, _is_trained(tensor), _has_hooks(tensor))


def _is_trained(tensor: torch.Tensor) -> bool:
    with DisableTorchFunctionSubclass():
        return bool(requires_grad(tensor))


def _has_hooks(tensor: torch.Tensor) -> bool:
    with DisableTorchFunctionSubclass():
        return any(hooks_of(tensor) for hooks_of in GRADIENT_HOOKS)
