"""Bring the gradients of a port to the host when asked for, and tell Python code that misses them there.

Ported models, runners and host loops use it.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

from ..adapters.backend_protocol import BackendOptimizer, Executor
from ..diagnostics import CaptureError, DeviceError, Finding, OptionError, caller_place, notify
from ..diagnostics.places import is_user_file
from ..host_tensors import host_tensors, iter_gradient_hooks
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.modules import (
    EVERY_BACKWARD_HOOK,
    EVERY_BACKWARD_PRE_HOOK,
    read_backward_hooks,
    read_backward_pre_hooks,
)
from ..torch_insides.tensors import TENSOR_BASE
from .port import Port, name_modules

__all__ = ["anchor_gradients", "read_gradients", "refuse_hooks", "watch_gradient_reads"]

_PREFIX = "Gradient___"

_grad = TENSOR_BASE.grad

_SCALER = "leave `GradScaler` out and choose a precision: `PortOptions(precision='mixed')`"
# functions of torch that would change gradients, by their module: what to do instead
_READERS = {
    "torch.nn.utils.clip_grad": "clip on the device: `to_ipu(..., optimizer=optimizer, max_grad_norm=5.0)`",
    "torch.amp.grad_scaler": _SCALER,
    "torch.cuda.amp.grad_scaler": _SCALER,
}


# -- kept gradients ----------------------------------------------------------------------------------------------------


def anchor_gradients(
    port: Port, options: Any, optimizer: BackendOptimizer, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Let `options` bring the gradients of all parameters to the host that have one.

    Which ones have is known when the step has been compiled, so that it is compiled twice.
    """
    probe = port.backend.module.trainingModel(port.wrapped, options.clone(), optimizer=optimizer)
    try:
        probe.compile(*args, **kwargs)
        known = set(probe.getTensorNames())
    finally:
        probe.destroy()
    for name in _list_trainable(port):
        if _PREFIX + name in known:
            options.anchorTensor(_PREFIX + name, _PREFIX + name)


def read_gradients(
    port: Port, optimizer: BackendOptimizer, executor: Executor, iteration: int
) -> Dict[str, torch.Tensor]:
    """Return the gradient that a step of the device's `optimizer` used in the last call, by parameter.

    The device has those of each micro-batch, times the loss scaling; they are joined as it joins them. `iteration` is
    the place of the step in the call, from its end where it is negative. Raises DeviceError D009 when the port keeps
    none, or has not been called, OptionError P002 for a step that the call does not have.
    """
    options = port.options
    count = options.device_iterations
    if isinstance(iteration, bool) or not isinstance(iteration, int) or not -count <= iteration < count:
        raise OptionError.at_caller(
            "P002",
            message=f"`iteration` is {iteration!r}, and a call makes {count} optimizer step{'s' * (count > 1)}",
            help=f"use a number from 0 to {count - 1}, or from the end one from -{count} to -1",
        )
    if not options.keep_gradients:
        raise DeviceError.at_caller("D009", help="port the model with `PortOptions(keep_gradients=True)`")
    if executor is None:
        raise DeviceError.at_caller("D009", message="there are no gradients before the first training call")
    size = options.accumulation * options.replicas
    scale = (1.0 / size if options.reduction == "mean" else 1.0) / float(getattr(optimizer, "loss_scaling", 1.0))
    found = {}
    shapes = {name: parameter.shape for name, parameter in port.model.named_parameters()}
    for name in _list_trainable(port):
        if _PREFIX + name in executor.options.anchored_tensors:
            anchored = executor.getAnchoredTensor(_PREFIX + name)
            anchored = anchored.reshape(options.device_iterations, size, *shapes[name])
            found[name] = anchored[iteration].sum(dim=0) * scale
    return found


def _list_trainable(port: Port) -> List[str]:
    return [name for name, parameter in port.model.named_parameters() if parameter.requires_grad]


# -- hooks, which no device calls --------------------------------------------------------------------------------------


def refuse_hooks(port: Port) -> None:
    """Raise CaptureError C007 for a backward hook of a parameter, of a module, of the loss or of all modules."""
    for error in iter_gradient_hooks(host_tensors(port.wrapped)):
        raise error
    for name, module in name_modules(port):
        if not isinstance(module, torch.jit.ScriptModule) and (
            read_backward_hooks(module) or read_backward_pre_hooks(module)
        ):
            raise _make_hook_error(f"the module `{name}` ({type(module).__name__}) has a backward hook")
    if EVERY_BACKWARD_HOOK or EVERY_BACKWARD_PRE_HOOK:
        raise _make_hook_error("all modules have a backward hook (`register_module_full_backward_hook` or its like)")


def _make_hook_error(message: str) -> CaptureError:
    return CaptureError.at_caller(
        "C007",
        message=message,
        notes="the device differentiates and updates without Python code on the way; no hook would run",
        help="remove the hook, and compute in `forward` what it does to the gradient: `x * scale + (x - x * scale)"
        ".detach()` scales that of `x`",
    )


# -- reads of `.grad`, which see None ----------------------------------------------------------------------------------


def watch_gradient_reads(port: Port) -> None:
    """Say once (O007) that somebody reads the `.grad` of a parameter that the device trains.

    While an executor owns the parameters they are of a class that it made for itself. That class gets the property, so
    that no other model's tensors are slower, and it goes with the executor. torch's optimizers read `.grad` too, which
    says nothing: their steps are watched themselves.
    """
    said: List[str] = []

    def read(tensor: torch.Tensor) -> Any:
        with DisableTorchFunctionSubclass():
            gradient = _grad.__get__(tensor)
        if not said:
            _say_reader(said, gradient)
        return gradient

    def write(tensor: torch.Tensor, gradient: Optional[torch.Tensor]) -> None:
        with DisableTorchFunctionSubclass():
            _grad.__set__(tensor, gradient)

    def delete(tensor: torch.Tensor) -> None:
        with DisableTorchFunctionSubclass():
            _grad.__delete__(tensor)

    for kind in {type(host.tensor) for host in host_tensors(port.wrapped) if host.kind == "parameter"}:
        if kind.__name__ == "PoptorchParameter":
            kind.grad = property(read, write, delete)  # type: ignore[assignment]


def _say_reader(said: List[str], gradient: Optional[torch.Tensor]) -> None:
    # a backend's attribute hook may stand between the property and who reads it
    reader: Optional[FrameType] = sys._getframe(2)
    while reader is not None and reader.f_code.co_name in ("__getattribute__", "__torch_function__"):
        reader = reader.f_back
    is_users = reader is not None and is_user_file(reader.f_code.co_filename)
    if reader is None or not (is_users and gradient is None or reader.f_globals.get("__name__") in _READERS):
        return
    name = str(reader.f_globals.get("__name__"))
    said.append(name)
    what = "`.grad` is read and is None" if is_users else f"`{_name_function(reader)}` has nothing to work on"
    notify(
        Finding(
            "O007",
            message=f"{what}: the gradients of a ported model stay on the device, which made the step inside the call",
            place=caller_place(),
            help=_READERS.get(name, "read them by `PortOptions(keep_gradients=True)` and `ported.gradients()`"),
        )
    )


def _name_function(frame: FrameType) -> str:
    """Name the function of `frame`; comprehensions have frames of their own before Python 3.12."""
    running: Optional[FrameType] = frame
    while running is not None and running.f_code.co_name.startswith("<"):
        running = running.f_back
    return running.f_code.co_name if running is not None else "it"
