"""Noticing in later calls what a compiled step does not follow: parameters frozen or freed, and hooks added."""

from __future__ import annotations

import itertools
from typing import Any, List, NamedTuple, Sequence, Set, Tuple

import torch

from ..host_tensors import host_tensors
from .gradient_hooks import named_modules
from .modes import say_it_is_compiled_in
from .parts import Parts

__all__ = ["LateChanges"]

# read without the attribute hooks of a backend, as in `HostWrites`
_TENSOR_BASE: Any = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
_requires_grad = _TENSOR_BASE.requires_grad.__get__
_HOOKS = [
    getattr(_TENSOR_BASE, name).__get__
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks")  # torch 2.0 has no others than the first
    if hasattr(_TENSOR_BASE, name)
]
# a look at one parameter takes 0.3 microseconds
_PARAMETERS_PER_CALL = 8


class _Turn(NamedTuple):
    """What one call looks at: every so many-th parameter and module, and what was seen there last."""

    tensors: Tuple[torch.Tensor, ...]
    trained: List[bool]
    hookless: Tuple[torch.Tensor, ...]
    hooks: Tuple[Any, ...]


class LateChanges:
    """Looks at the parameters and modules of a compiled training step in turns, and says each change once (D005).

    A call looks at eight parameters and their share of the modules, so that it costs microseconds however large the
    model is; small models are seen as a whole in every call.
    """

    def __init__(self, parts: Parts) -> None:
        """Take everything as it is now for what was compiled."""
        hosts = [host for host in host_tensors(parts.wrapped) if host.kind == "parameter"]
        self._parameters = [(host.name, host.tensor, _is_trained(host.tensor)) for host in hosts]
        self._modules = [
            (name, module._backward_hooks, module._backward_pre_hooks)
            for name, module in named_modules(parts)
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        self._said: Set[Tuple[str, str]] = set()
        self._turns = itertools.cycle(self._make_turns())

    def look(self) -> None:
        """Look at the next share, and at everything if something is new there."""
        tensors, trained, hookless, hooks = next(self._turns)
        with torch._C.DisableTorchFunctionSubclass():
            is_new = [*map(_requires_grad, tensors)] != trained
            for hooks_of in _HOOKS:
                is_new = is_new or any(map(hooks_of, hookless))
        if is_new or any(hooks):
            self.say()

    def say(self) -> None:
        """Look at everything, and say what is new."""
        found = {
            "`requires_grad` changed": [name for name, tensor, was in self._parameters if _is_trained(tensor) != was],
            "a gradient hook was added": [name for name, tensor, _was in self._parameters if _has_hooks(tensor)],
            "a backward hook was added to a module": [name for name, *hooks in self._modules if any(hooks)],
        }
        for what, names in found.items():
            new = [name for name in names if (what, name) not in self._said]
            others = f" and {len(new) - 1} more" if len(new) > 1 else ""
            if new:
                say_it_is_compiled_in(f"{what} after the step was compiled (`{new[0]}`{others})")
        # what is again as it was compiled may change again
        self._said = {(what, name) for what, names in found.items() for name in names}
        self._turns = itertools.cycle(self._make_turns())

    def _make_turns(self) -> List[_Turn]:
        tensors = [tensor for _name, tensor, _was in self._parameters]
        hooks = [each for _name, *both in self._modules for each in both if not each]
        count = max(1, -(-len(tensors) // _PARAMETERS_PER_CALL))
        return [_turn(tensors[first::count], hooks[first::count]) for first in range(count)]


def _turn(tensors: Sequence[torch.Tensor], hooks: Sequence[Any]) -> _Turn:
    trained = [_is_trained(tensor) for tensor in tensors]
    return _Turn(tuple(tensors), trained, tuple(each for each in tensors if not _has_hooks(each)), tuple(hooks))


def _is_trained(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return bool(_requires_grad(tensor))


def _has_hooks(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return any(hooks_of(tensor) for hooks_of in _HOOKS)
