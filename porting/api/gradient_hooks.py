"""Hooks that Python code hangs into the backward pass, which no device calls: found before a step is compiled."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, NoReturn, Tuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ..diagnostics import CaptureError, caller_place
from ..host_tensors import host_tensors, refuse_gradient_hooks, walk_modules
from .parts import Parts

__all__ = ["named_modules", "refuse_hooks"]


def refuse_hooks(parts: Parts) -> None:
    """Raise CaptureError C007 for a backward hook of a parameter, of a module, of the loss or of all modules."""
    hosts = [host for host in host_tensors(parts.wrapped) if host.kind == "parameter"]
    refuse_gradient_hooks(hosts, _raise)
    for name, module in named_modules(parts):
        if not isinstance(module, torch.jit.ScriptModule) and (module._backward_hooks or module._backward_pre_hooks):
            raise _hook_error(f"the module `{name}` ({type(module).__name__}) has a backward hook")
    every: Any = module_hooks
    if every._global_backward_hooks or every._global_backward_pre_hooks:
        raise _hook_error("all modules have a backward hook (`register_module_full_backward_hook` or its like)")


def named_modules(parts: Parts) -> Iterator[Tuple[str, nn.Module]]:
    """Yield the modules of the model and of its losses, by the names that the user knows."""
    for prefix, module in walk_modules(parts.model):
        yield prefix[:-1] or type(module).__name__, module
    losses = parts.loss if isinstance(parts.loss, Mapping) else {"loss": parts.loss}
    for name, loss in losses.items():
        function = getattr(loss, "function", loss)
        if isinstance(function, nn.Module):
            for prefix, module in walk_modules(function):
                yield f"{name}.{prefix}"[:-1], module


def _hook_error(message: str) -> CaptureError:
    return CaptureError.of(
        "C007",
        message=message,
        place=caller_place(),
        notes="the device differentiates and updates without Python code on the way; no hook would run",
        help="remove the hook, and compute in `forward` what it does to the gradient: `x * scale + (x - x * scale)"
        ".detach()` scales that of `x`",
    )


def _raise(error: Exception) -> NoReturn:
    raise error
