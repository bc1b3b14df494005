"""Raise what a capture refuses, each kind by a row of one table, with a remedy.

All parts of a capture raise their errors here.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Union

import torch

from ..diagnostics import CaptureError, Place, PortingError, advise_on_autograd, caller_place
from ..diagnostics.places import is_user_file
from .causes import PADDED_FORM, find_layer_with, list_remedies
from .plain_values import dtype_name

__all__ = [
    "Refusal",
    "add_context",
    "add_note",
    "autograd_error",
    "data_dependent_error",
    "host_read_error",
    "host_tensor_error",
    "unsupported_result_error",
    "unsupported_type_error",
    "value_dependent_error",
]

_DEVICE_TYPES = "float32, float16, int32, int16, int8, uint8 or bool"


class _Texts(NamedTuple):
    """What a refusal says, with `{names}` where cases differ."""

    code: str
    message: str
    label: str = ""
    notes: Sequence[str] = ()
    help: Union[str, Sequence[str]] = ()


class Refusal(Enum):
    """The kinds of things that a capture refuses."""

    ALIASED_WRITE = _Texts(
        "C018",
        "a `{kind}` branch writes to a tensor around it of which it also uses a view",
        label="a branch works on copies, which would no longer share memory",
        help="make the tensor an input of the branch, and take views of it inside",
    )
    AUTOCAST = _Texts(
        "P001",
        "`torch.autocast` is active while `forward` is captured",
        label="the device does not choose types operator by operator",
        help="leave `autocast` out and cast by hand (`model.half()`, `x.half()`), or choose a precision in the options",
    )
    AUTOGRAD = _Texts(
        "C007",
        "`{name}` is called inside `forward`",
        label="the device differentiates the final loss itself, once, after `forward`",
    )
    BACKWARD_HOOK = _Texts(
        "C007",
        "a module with a backward hook is called inside `forward` ({kind})",
        label="the device differentiates the final loss itself, without Python code on the way",
        help="remove the hook, or compute what it does in `forward`",
    )
    CUSTOM_FUNCTION = _Texts(
        "C005",
        "`{name}` is a custom autograd function, whose `backward` a captured graph cannot hold",
        label="{label}",
        help=(
            "write it with differentiable operators: `x + (rounded - x).detach()` has the value of `rounded` and the "
            "gradient of `x`",
            "if its `backward` is just the derivative: `PortOptions(allow=['custom-autograd-function'])`",
        ),
    )
    DIFFERENTIABLE_CONSTANT = _Texts(
        "C003",
        "a CPU tensor that requires a gradient is moved to the device in `forward`",
        label="the graph takes it for a constant, which has no gradient",
        help=(
            "make it a parameter of the model: `self.name = nn.Parameter(...)`",
            "move a copy that needs no gradient: `tensor.detach().to('ipu')`",
        ),
    )
    DYNAMIC_SHAPE = _Texts(
        "C002",
        "the output shape of `aten::{name}` depends on the values of its input",
        label="a static graph has to know every shape when it is compiled",
        help="{help}",
    )
    EMPTY_INPUT = _Texts(
        "C008",
        "Zero-sized tensors are unsupported (Got shape {shape})",
        notes=("the tensor is the input `{name}`",),
        help="leave the input out, or give it at least one element",
    )
    ENDED_BODY = _Texts(
        "C018",
        "a tensor that was made inside the body of a loop or branch is used outside of it",
        label="outside its body the tensor does not exist",
        help="return the tensor from the body",
    )
    FINISHED_CAPTURE = _Texts(
        "C014",
        "`{operator}` got a device tensor that belongs to a finished capture",
        notes=("device tensors have no value and live only while `forward` is captured",),
        help="return the tensor from `forward` instead of storing it on the module or in a list",
    )
    GENERATOR = _Texts(
        "C013",
        "`aten::{name}` draws from a `torch.Generator`, which lives on the host",
        label="the device has one random stream of its own",
        help="leave `generator` out and seed the device's stream in the options",
    )
    HIDDEN_TENSORS = _Texts(
        "C014",
        "{where} of `forward` holds tensors inside `{kind}`, which the graph cannot see",
        notes=("tensors are found in tuples, lists, dictionaries and fields of dataclasses, however deeply nested",),
        help="use a named tuple, a dataclass or a dictionary instead",
    )
    FOREIGN_LAYER = _Texts(
        "C003",
        "`forward` calls a `{layer}` that is no part of the model: its tensors are on the host",
        label="it is made in `forward`, or kept where no parts are looked for: nothing trains it",
        notes=("shape={shape}", "dtype={kind}"),
        help=(
            "make the layer in `__init__` and keep it: `self.name = {layer}(...)`",
            "layers in a list or a dictionary are parts of the model in `nn.ModuleList` or `nn.ModuleDict`",
        ),
    )
    HOST_READ = _Texts(
        "C001",
        "{what} reads a tensor's value on the host while `forward` is captured",
        label="the value does not exist yet: the graph is compiled before it runs",
        help="{help}",
    )
    HOST_TENSOR = _Texts(
        "C003",
        "a CPU tensor of shape {shape} and type {kind} is mixed with device tensors",
        label="this operator gets a tensor that lives on the host",
        notes=("shape={shape}", "dtype={kind}"),
        help=(
            "make it on the device: `device=x.device`, or `.to('ipu')` for a constant",
            "a tensor that the model keeps belongs in `self.register_buffer(...)`",
        ),
    )
    LOSS_WITHOUT_TENSOR = _Texts(
        "L003",
        "the loss is {kind}, not a tensor of the graph",
        help="compute the loss from the model's output with torch operators",
    )
    MADE_ELSEWHERE = _Texts(
        "C004",
        "`torch.{name}` makes a tensor on `{device}` in `forward`",
        label="a static graph has one device, which is another one",
        help="make it where the data is: `device=x.device`",
    )
    METADATA = _Texts(
        "C015",
        "`aten::{name}` changes the shape of a tensor in place",
        label="in a graph a tensor keeps its shape",
        help="use the form that returns a new tensor: `x = x.{plain_name}(...)`",
    )
    MOVE = _Texts(
        "C004",
        "`forward` moves a device tensor to `{device}`",
        label="a static graph cannot leave the device half way",
        help="leave the tensor on the device, or return it from `forward` as an output",
    )
    NO_SHAPE_RULE = _Texts(
        "C013",
        "`{operator}` runs on the CPU but cannot be captured: {error}",
        label="its result's shape is not known without running it",
        help="compute it outside `forward`, or express it with other operators",
    )
    OPEN_BODY = _Texts(
        "C018",
        "the body of a `{kind}` has a beginning and no end",
        help="end it, and let errors inside the body leave `forward`",
    )
    PRINT = _Texts(
        "C010",
        "`forward` prints a tensor, but its value does not exist while the graph is captured",
        label="on the device this prints `<unavailable>`, once, at compile time",
        notes=("the tensor has shape {shape} and type {kind}",),
        help="return the tensor from `forward` and print it after the call",
    )
    REASSIGNED_DATA = _Texts(
        "C006",
        "`forward` gives a tensor other memory by assigning to `.data`",
        label="a graph cannot exchange the memory of a tensor",
        help="write the new values into it: `with torch.no_grad(): tensor.copy_(new_value)`",
    )
    SLICE_LENGTH = _Texts(
        "C017",
        "{fault}",
        label="the device slices at a changing position in parts of one size",
        help="choose a length that divides the dimension, or `x.index_select(dim, i + torch.arange(n))`",
    )
    UNKNOWN_GELU = _Texts("C017", "Unknown GELU approximate", help='use "none" or "tanh"')
    UNSUPPORTED_RESULT = _Texts(
        "C012",
        "`aten::{name}` makes a tensor of type {kind}, which the device does not have",
        label=f"the device computes in {_DEVICE_TYPES}",
        help="{help}",
    )
    UNSUPPORTED_TYPE = _Texts(
        "C012",
        "{what} has type {kind}, which the device does not have",
        help="{help}",
    )
    WRITE_AROUND_BODY = _Texts(
        "C018",
        "the body of a `{kind}` writes to a tensor that lives outside of it",
        label="a body may read tensors around it, and write only to its inputs and to what it makes itself",
        help="make the tensor an input of the body and return its new value",
    )

    def error(self, *, notes: Sequence[str] = (), helps: Sequence[str] = (), **facts: Any) -> CaptureError:
        """Return the error at the user's line that is running, with `facts` in the places of names."""
        return self.error_at(caller_place(), notes=notes, helps=helps, **facts)

    def error_at(
        self, place: Optional[Place], *, notes: Sequence[str] = (), helps: Sequence[str] = (), **facts: Any
    ) -> CaptureError:
        """Return the error at `place`; `notes` come after those of the table, and `helps` too."""
        texts = self.value
        own = [texts.help] if isinstance(texts.help, str) else texts.help
        helps = [*(text.format(**facts) for text in own), *helps]
        return CaptureError.of(
            texts.code,
            message=texts.message.format(**facts),
            place=place,
            label=texts.label.format(**facts),
            notes=[*(note.format(**facts) for note in texts.notes), *notes],
            help=list_remedies(texts.code, sys._getframe(1), helps),
        )


# What to do instead of an operator whose output shape depends on values.
_STATIC_FORMS = {
    "index": "keep the shape and blank out the rest: `torch.where(mask, x, 0)` instead of `x[mask]`",
    "masked_select": "keep the shape and blank out the rest: `torch.where(mask, x, 0)`",
    "one_hot": "say how many classes there are: `one_hot(x, num_classes)`",
    "bincount": "count with a fixed number of classes: `one_hot(x, num_classes).sum(0)`",
    "repeat_interleave": "say how long the result is: `repeat_interleave(x, repeats, output_size=n)`",
    "_pack_padded_sequence": PADDED_FORM,
    "_unique2": "drop duplicates before the call, or mark them: `x.sort()` and compare neighbours",
    "unique_consecutive": "drop duplicates before the call, or compare neighbours: `x[1:] != x[:-1]`",
}
_STATIC_FORM = "keep the shape fixed: `torch.where` with a mask, or `topk` with a fixed `k`"
_READ_LATER = (
    "keep the value on the device (`torch.where`, arithmetic on tensors), or return the tensor and read it after the "
    "call"
)


def host_read_error(what: str, *, help: str = _READ_LATER) -> CaptureError:
    """Return the error for reading a tensor's value in `forward`."""
    return Refusal.HOST_READ.error(what=what, help=help)


def data_dependent_error(name: str) -> CaptureError:
    """Return the error for the operator called `name`, whose output shape depends on values."""
    return Refusal.DYNAMIC_SHAPE.error(name=name, help=_STATIC_FORMS.get(name, _STATIC_FORM))


def value_dependent_error(name: str) -> CaptureError:
    """Return the error for the operator called `name`, whose CPU implementation reads values."""
    return data_dependent_error(name) if name in _STATIC_FORMS else host_read_error(f"`aten::{name}`")


def host_tensor_error(tensor: torch.Tensor) -> CaptureError:
    """Return the error for a plain CPU tensor among an operator's arguments."""
    facts: Dict[str, Any] = {"shape": list(tensor.shape), "kind": dtype_name(tensor.dtype)}
    layer = find_layer_with(tensor, sys._getframe(1))
    return Refusal.HOST_TENSOR.error(**facts) if layer is None else Refusal.FOREIGN_LAYER.error(layer=layer, **facts)


def autograd_error(func: Callable[..., Any]) -> CaptureError:
    """Return the error for differentiating inside `forward`."""
    # whichever class torch has a method from, programs know it as that of `torch.Tensor`
    name = getattr(func, "__qualname__", str(func)).replace("TensorBase.", "Tensor.")
    return Refusal.AUTOGRAD.error(name=name, helps=advise_on_autograd(name))


def unsupported_type_error(what: str, tensor: torch.Tensor) -> CaptureError:
    """Return the error for a tensor called `what` whose type or layout the device does not have."""
    layout, help = "", f"convert it to {_DEVICE_TYPES} before the call"
    if tensor.layout != torch.strided:
        layout, help = f" with layout {tensor.layout}", "make it dense before the call: `.to_dense()`"
    return Refusal.UNSUPPORTED_TYPE.error(what=what, kind=f"{tensor.dtype}{layout}", help=help)


def unsupported_result_error(name: str, kind: str) -> CaptureError:
    """Return the error for the operator called `name` that makes or asks for the type `kind`."""
    help = "keep tensors dense and in one of these types"
    if "complex" in kind:
        help = "compute with real numbers: real and imaginary part as two tensors"
    return Refusal.UNSUPPORTED_RESULT.error(name=name, kind=kind, help=help)


def add_context(
    error: PortingError, *, module: str, traceback: Optional[TracebackType] = None, frame: Optional[FrameType] = None
) -> None:
    """Add to `error` in which part of the model it arose, and where in torch's own layers when it was there.

    It was raised, and has a `traceback`, or arose in `frame` and goes on.
    """
    inside = _find_place_inside_torch(traceback) if frame is None else _find_place_on_stack(frame)
    if inside is not None:
        add_note(error, f"it happens inside torch, at {inside}")
    if module:
        add_note(error, f"the module is {module}")


def add_note(error: PortingError, note: str) -> None:
    """Add one more note to the finding of `error`."""
    error.finding = dataclasses.replace(error.finding, notes=(*error.finding.notes, note))
    # exceptions are copied and pickled by their arguments
    error.args = (error.finding,)


# Layers and functions that torch writes in Python; its machinery around them would only distract.
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__))
_TORCH_LAYERS = tuple(os.path.join(_TORCH_FOLDER, name) for name in ("nn", "distributions", "functional.py"))
_TORCH_MACHINERY = frozenset(
    os.path.join(_TORCH_FOLDER, "nn", "modules", name) for name in ("module.py", "container.py", "_functions.py")
)


def _find_place_inside_torch(traceback: Optional[TracebackType]) -> Optional[Place]:
    """Return the innermost line of torch's layers below the innermost line of the user's."""
    found: Optional[Place] = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_user_file(file):
            # a hook or a callback: what torch did above it is not what went wrong
            found = None
        elif _is_torch_layer(file):
            found = Place(os.path.relpath(file, os.path.dirname(_TORCH_FOLDER)), traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _find_place_on_stack(frame: Optional[FrameType]) -> Optional[Place]:
    """Return the innermost line of torch's layers on the stack, as far as the innermost line of the user's."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        file = frame.f_code.co_filename
        if _is_torch_layer(file):
            return Place(os.path.relpath(file, os.path.dirname(_TORCH_FOLDER)), frame.f_lineno)
        frame = frame.f_back
    return None


def _is_torch_layer(file: str) -> bool:
    return file.startswith(_TORCH_LAYERS) and file not in _TORCH_MACHINERY
