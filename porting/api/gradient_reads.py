"""Reads of `.grad` on the host while a device trains: clipping, unscaling, and the user's own; all of them see None."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, List, Optional, Tuple

import torch

from ..diagnostics import Finding, caller_place, notify
from ..diagnostics.places import is_user_file
from ..host_tensors import host_tensors
from .parts import Parts

__all__ = ["watch_gradient_reads"]

_TENSOR_BASE: Any = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
_grad = _TENSOR_BASE.grad

_SCALER = "leave `GradScaler` out and choose a precision: `PortOptions(precision='mixed')`"
# functions of torch that would change gradients, by their module: what to do instead
_READERS = {
    "torch.nn.utils.clip_grad": "clip on the device: `to_ipu(..., optimizer=optimizer, max_grad_norm=5.0)`",
    "torch.amp.grad_scaler": _SCALER,
    "torch.cuda.amp.grad_scaler": _SCALER,
}


def watch_gradient_reads(parts: Parts) -> None:
    """Say once (O007) that somebody reads the `.grad` of a parameter that the device trains.

    While an executor owns the parameters they are of a class that it made for itself. That class gets the property, so
    that no other model's tensors are slower, and it goes with the executor. torch's optimizers read `.grad` too, which
    says nothing: their steps are watched themselves.
    """
    hosts = [host for host in host_tensors(parts.wrapped) if host.kind == "parameter"]
    said: List[str] = []
    for kind in {type(host.tensor) for host in hosts}:
        if kind.__name__ == "PoptorchParameter":
            kind.grad = _watched_gradient(said)  # type: ignore[assignment]


def _watched_gradient(said: List[str]) -> property:
    def read(tensor: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            gradient = _grad.__get__(tensor)
        if not said:
            _say_reader(said, gradient)
        return gradient

    def write(tensor: Any, gradient: Any) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            _grad.__set__(tensor, gradient)

    def delete(tensor: Any) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            _grad.__delete__(tensor)

    return property(read, write, delete)


def _say_reader(said: List[str], gradient: Any) -> None:
    reader, is_users = _reader()
    if reader is None or not (is_users and gradient is None or reader.f_globals.get("__name__") in _READERS):
        return
    name = str(reader.f_globals.get("__name__"))
    said.append(name)
    what = "`.grad` is read and is None" if is_users else f"`{_function_name(reader)}` has nothing to work on"
    notify(
        Finding(
            "O007",
            message=f"{what}: the gradients of a ported model stay on the device, which made the step inside the call",
            place=caller_place(),
            help=_READERS.get(name, "read them by `PortOptions(keep_gradients=True)` and `ported.gradients()`"),
        )
    )


def _reader() -> Tuple[Optional[FrameType], bool]:
    """Return the frame that reads `.grad`, and whether it is the user's; a backend's attribute hook is between."""
    frame: Optional[FrameType] = sys._getframe(3)
    while frame is not None and frame.f_code.co_name in ("__getattribute__", "__torch_function__"):
        frame = frame.f_back
    return frame, frame is not None and is_user_file(frame.f_code.co_filename)


def _function_name(frame: FrameType) -> str:
    """Name the function of `frame`; comprehensions have frames of their own before Python 3.12."""
    running: Optional[FrameType] = frame
    while running is not None and running.f_code.co_name.startswith("<"):
        running = running.f_back
    return running.f_code.co_name if running is not None else "it"
