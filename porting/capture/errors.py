"""Errors of a capture: one function for each kind of thing that it refuses, each with a remedy."""

from __future__ import annotations

import dataclasses
import os
from types import TracebackType
from typing import Any, Optional

import torch

from ..diagnostics import CaptureError, Finding, Place, caller_place
from ..diagnostics.places import is_user_file

__all__ = [
    "add_context",
    "add_note",
    "autocast_error",
    "autograd_error",
    "data_dependent_error",
    "differentiable_constant_error",
    "finished_capture_error",
    "generator_error",
    "hidden_tensors_error",
    "host_read_error",
    "host_tensor_error",
    "metadata_error",
    "move_error",
    "no_shape_rule_error",
    "print_finding",
    "reassigned_data_error",
    "unknown_argument_error",
    "unsupported_result_error",
    "unsupported_type_error",
    "value_dependent_error",
]

_DEVICE_TYPES = "float32, float16, int32, int16, int8, uint8 or bool"

# What to do instead of an operator whose output shape depends on values.
_STATIC_FORMS = {
    "index": "keep the shape and blank out the rest: `torch.where(mask, x, 0)` instead of `x[mask]`",
    "masked_select": "keep the shape and blank out the rest: `torch.where(mask, x, 0)`",
    "one_hot": "say how many classes there are: `one_hot(x, num_classes)`",
    "bincount": "count with a fixed number of classes: `one_hot(x, num_classes).sum(0)`",
    "repeat_interleave": "say how long the result is: `repeat_interleave(x, repeats, output_size=n)`",
    "_pack_padded_sequence": "give the layer the padded batch, and blank out what it returns for the padding",
    "_unique2": "drop duplicates before the call, or mark them: `x.sort()` and compare neighbours",
    "unique_consecutive": "drop duplicates before the call, or compare neighbours: `x[1:] != x[:-1]`",
}
_STATIC_FORM = "keep the shape fixed: `torch.where` with a mask, or `topk` with a fixed `k`"


def host_read_error(what: str, *, help: Optional[str] = None) -> CaptureError:
    """Return the error for reading a tensor's value in `forward`."""
    return CaptureError.of(
        "C001",
        message=f"{what} reads a tensor's value on the host while `forward` is captured",
        place=caller_place(),
        label="the value does not exist yet: the graph is compiled before it runs",
        help=help
        or "keep the value on the device (`torch.where`, arithmetic on tensors), or return the tensor and read it "
        "after the call",
    )


def data_dependent_error(name: str) -> CaptureError:
    """Return the error for the operator called `name`, whose output shape depends on values."""
    return CaptureError.of(
        "C002",
        message=f"the output shape of `aten::{name}` depends on the values of its input",
        place=caller_place(),
        label="a static graph has to know every shape when it is compiled",
        help=_STATIC_FORMS.get(name, _STATIC_FORM),
    )


def value_dependent_error(name: str) -> CaptureError:
    """Return the error for the operator called `name`, whose CPU implementation reads values."""
    return data_dependent_error(name) if name in _STATIC_FORMS else host_read_error(f"`aten::{name}`")


def no_shape_rule_error(func: Any, error: Exception) -> CaptureError:
    """Return the error for an operator that runs on the CPU but not on tensors without values."""
    return CaptureError.of(
        "C013",
        message=f"`{func}` runs on the CPU but cannot be captured: {error}",
        place=caller_place(),
        label="its result's shape is not known without running it",
        help="compute it outside `forward`, or express it with other operators",
    )


def host_tensor_error(tensor: torch.Tensor) -> CaptureError:
    """Return the error for a plain CPU tensor among an operator's arguments."""
    kind = _type_name(tensor.dtype)
    return CaptureError.of(
        "C003",
        message=f"a CPU tensor of shape {list(tensor.shape)} and type {kind} is mixed with device tensors",
        place=caller_place(),
        label="this operator gets a tensor that lives on the host",
        notes=(f"shape={list(tensor.shape)}", f"dtype={kind}"),
        help=(
            "make it on the device: `device=x.device`, or `.to('ipu')` for a constant",
            "a tensor that the model keeps belongs in `self.register_buffer(...)`",
        ),
    )


def hidden_tensors_error(value: Any, *, where: str, place: Optional[Place]) -> CaptureError:
    """Return the error for tensors inside an object that a capture cannot take apart; `where` says whose it is."""
    kind = type(value).__name__
    return CaptureError.of(
        "C014",
        message=f"{where} of `forward` holds tensors inside `{kind}`, which the graph cannot see",
        place=place,
        notes=("tensors are found in tuples, lists, dictionaries and named tuples, however deeply nested",),
        help=f"use a named tuple or a dictionary instead, or teach it: `register_structure_adapter({kind}, adapter)`",
    )


def move_error(device: Any) -> CaptureError:
    """Return the error for moving a device tensor elsewhere in `forward`."""
    return CaptureError.of(
        "C004",
        message=f"`forward` moves a device tensor to `{device}`",
        place=caller_place(),
        label="a static graph cannot leave the device half way",
        help="leave the tensor on the device, or return it from `forward` as an output",
    )


def differentiable_constant_error() -> CaptureError:
    """Return the error for moving a host tensor to the device that is to get a gradient."""
    return CaptureError.of(
        "C003",
        message="a CPU tensor that requires a gradient is moved to the device in `forward`",
        place=caller_place(),
        label="the graph takes it for a constant, which has no gradient",
        help=(
            "make it a parameter of the model: `self.name = nn.Parameter(...)`",
            "move a copy that needs no gradient: `tensor.detach().to('ipu')`",
        ),
    )


def unknown_argument_error(message: str, *, help: str) -> CaptureError:
    """Return the error for an argument that the device's form of an operator does not know."""
    return CaptureError.of("C017", message=message, place=caller_place(), help=help)


def reassigned_data_error() -> CaptureError:
    """Return the error for `tensor.data = other`."""
    return CaptureError.of(
        "C006",
        message="`forward` gives a tensor other memory by assigning to `.data`",
        place=caller_place(),
        label="a graph cannot exchange the memory of a tensor",
        help="write the new values into it: `with torch.no_grad(): tensor.copy_(new_value)`",
    )


def autograd_error(func: Any) -> CaptureError:
    """Return the error for differentiating inside `forward`."""
    name = getattr(func, "__qualname__", str(func)).replace("TensorBase.", "Tensor.")
    return CaptureError.of(
        "C007",
        message=f"`{name}` is called inside `forward`",
        place=caller_place(),
        label="the device differentiates the final loss itself, once, after `forward`",
        help="return the loss and let the training model differentiate it",
    )


def autocast_error() -> CaptureError:
    """Return the error for operators under `torch.autocast`."""
    return CaptureError.of(
        "P001",
        message="`torch.autocast` is active while `forward` is captured",
        place=caller_place(),
        label="the device does not choose types operator by operator",
        help="leave `autocast` out and cast by hand (`model.half()`, `x.half()`), or choose a precision in the options",
    )


def generator_error(name: str) -> CaptureError:
    """Return the error for drawing from a generator of the host."""
    return CaptureError.of(
        "C013",
        message=f"`aten::{name}` draws from a `torch.Generator`, which lives on the host",
        place=caller_place(),
        label="the device has one random stream of its own",
        help="leave `generator` out and seed the device's stream in the options",
    )


def metadata_error(func: Any) -> CaptureError:
    """Return the error for in-place operators that change a shape."""
    name = func.overloadpacket.__name__
    return CaptureError.of(
        "C015",
        message=f"`aten::{name}` changes the shape of a tensor in place",
        place=caller_place(),
        label="in a graph a tensor keeps its shape",
        help=f"use the form that returns a new tensor: `x = x.{name.rstrip('_')}(...)`",
    )


def unsupported_type_error(what: str, tensor: torch.Tensor) -> CaptureError:
    """Return the error for a tensor called `what` whose type or layout the device does not have."""
    return CaptureError.of(
        "C012",
        message=f"{what} has type {_kind_of(tensor)}, which the device does not have",
        place=caller_place(),
        help=f"convert it to {_DEVICE_TYPES} before the call",
    )


def unsupported_result_error(name: str, kind: str) -> CaptureError:
    """Return the error for the operator called `name` that makes or asks for the type `kind`."""
    return CaptureError.of(
        "C012",
        message=f"`aten::{name}` makes a tensor of type {kind}, which the device does not have",
        place=caller_place(),
        label=f"the device computes in {_DEVICE_TYPES}",
        help="compute with real numbers: real and imaginary part as two tensors"
        if "complex" in kind
        else "keep tensors dense and in one of these types",
    )


def finished_capture_error(func: Any) -> CaptureError:
    """Return the error for using a device tensor after its capture has ended."""
    return CaptureError.of(
        "C014",
        message=f"`{func}` got a device tensor that belongs to a finished capture",
        place=caller_place(),
        notes=("device tensors have no value and live only while `forward` is captured",),
        help="return the tensor from `forward` instead of storing it on the module or in a list",
    )


def print_finding(tensor: torch.Tensor) -> Finding:
    """Return the finding for printing a tensor in `forward`."""
    return Finding(
        "C010",
        message="`forward` prints a tensor, but its value does not exist while the graph is captured",
        place=caller_place(),
        label="on the device this prints `<unavailable>`, once, at compile time",
        notes=(f"the tensor has shape {list(tensor.shape)} and type {_type_name(tensor.dtype)}",),
        help="return the tensor from `forward` and print it after the call",
    )


def add_context(error: CaptureError, *, module: str, traceback: Optional[TracebackType]) -> None:
    """Add to `error` in which part of the model it arose, and where in torch's own layers when it was there."""
    inside = _place_inside_torch(traceback)
    if inside is not None:
        add_note(error, f"it happens inside torch, at {inside}")
    if module:
        add_note(error, f"the module is {module}")


def add_note(error: CaptureError, note: str) -> None:
    """Add one more note to the finding of `error`."""
    error.finding = dataclasses.replace(error.finding, notes=(*error.finding.notes, note))
    error.args = (error.finding,)


# Layers and functions that torch writes in Python; its machinery around them would only distract.
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__))
_TORCH_LAYERS = tuple(os.path.join(_TORCH_FOLDER, name) for name in ("nn", "distributions", "functional.py"))
_TORCH_MACHINERY = frozenset(
    os.path.join(_TORCH_FOLDER, "nn", "modules", name) for name in ("module.py", "container.py", "_functions.py")
)


def _place_inside_torch(traceback: Optional[TracebackType]) -> Optional[Place]:
    """Return the innermost line of torch's layers below the innermost line of the user's."""
    found: Optional[Place] = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_user_file(file):
            found = None
        elif file.startswith(_TORCH_LAYERS) and file not in _TORCH_MACHINERY:
            found = Place(os.path.relpath(file, os.path.dirname(_TORCH_FOLDER)), traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _kind_of(tensor: torch.Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" with layout {tensor.layout}"
    return f"{tensor.dtype}{layout}"


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
