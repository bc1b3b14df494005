"""Explain a failed call: the backend's complaint in the toolkit's words, with the line and the remedy."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from torch import nn

from ..diagnostics import (
    BatchError,
    CaptureError,
    DeviceError,
    Finding,
    OptionError,
    PortingError,
    caller_place,
    find_assignment,
    find_raising_frame,
)
from .batch import BatchSignature, find_foreign_device

__all__ = ["explain_failure", "refuse_loss_without_gradient"]

_DEVICE_FAMILIES = ("S", "D")


class _Phrase(NamedTuple):
    """A part of one of PopTorch's messages, and what it means."""

    text: str
    code: str
    remedy: str


# what PopTorch says without a line; the simulator's errors carry their finding
_PHRASES = (
    _Phrase("Couldn't find a loss in graph", "L004", "pass the loss: `to_ipu(model, loss)`"),
    _Phrase("Multiple independent losses found", "L005", "add the losses up to one: `loss={'a': loss_a, 'b': loss_b}`"),
    _Phrase("aten::item is only supported in eager mode", "C001", "look for `.item()`, `float()` and `if` on tensors"),
    _Phrase("output shape is determined by the tensor values", "C002", "compute with a mask, `torch.where`, instead"),
    _Phrase("Expected an IPU tensor but got", "C003", "make constants buffers of the module: `register_buffer`"),
    _Phrase(
        "does not support broadcasting buffers",
        "P002",
        "pass `PortOptions(broadcast_buffers=False)`: each replica then keeps buffers (statistics) of its own",
    ),
    _Phrase("Zero-sized tensors are unsupported", "C008", "leave empty batches out: `drop_last=True` for the last one"),
    _Phrase("Illegal move to ", "C004", "return the tensor from `forward` and move it there"),
    _Phrase(
        "within the model when calling the forward method",
        "C006",
        "write into it in place: `self.NAME.copy_(new_value)`",
    ),
    _Phrase("the model when calling the forward method", "C006", "leave it registered: `forward` may only read it"),
)


def explain_failure(
    error: BaseException,
    compiled_for: Optional[BatchSignature],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    remedy: str,
    model: Optional[nn.Module] = None,
) -> Optional[PortingError]:
    """Return the toolkit's error for `error`, which a backend raised for a call, or None when it says enough itself.

    Backends that explain themselves carry the `finding`. Otherwise the arguments are compared with those of the
    compilation, if there is one, and the vendor's well-known messages are told apart; their place is the line of
    `forward` that the error came through. `remedy` says how to compile for other batches, `model` is the user's.
    """
    if isinstance(error, PortingError):
        return None
    finding = getattr(error, "finding", None)
    if isinstance(finding, Finding):
        return (DeviceError if finding.code.startswith(_DEVICE_FAMILIES) else CaptureError)(finding)
    finding = find_foreign_device(args, kwargs)
    if finding is None and compiled_for is not None:
        finding = compiled_for.difference(BatchSignature(args, kwargs), remedy=remedy)
    if finding is None and "Invalid batch dimension" in str(error):
        finding = _not_divisible(str(error), args, kwargs)
    if finding is None and isinstance(error, IndexError):
        finding = _out_of_range(str(error))
    return _in_other_words(error, model) if finding is None else BatchError(finding)


def _out_of_range(text: str) -> Optional[Finding]:
    """Return B013 for torch's words about a label that is no class, or about an index into a table; None for others."""
    if not re.search(r"Target -?\d+ is out of bounds|index out of range in self", text):
        return None
    return Finding(
        "B013",
        place=caller_place(),
        label="this call",
        notes=(f"torch says: {_first_line(text)}", "an IPU would not notice, and train with some other number"),
        help=(
            "labels count from 0 to the number of classes less one, and tokens to the rows of the embedding less one",
            "for samples that are not to count, give the loss an `ignore_index`",
        ),
    )


def _not_divisible(vendor_text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Finding:
    return Finding(
        "B004",
        message=f"a batch of {BatchSignature(args, kwargs).rows} rows cannot be cut into equal micro-batches",
        place=caller_place(),
        label="this call",
        notes=("rows = micro-batch x accumulation x replicas x device iterations", _first_line(vendor_text)),
        help="hand over `options.samples_per_call` rows: `ported.dataloader(...)` makes such batches",
    )


def _in_other_words(error: BaseException, model: Optional[nn.Module]) -> Optional[PortingError]:
    phrase = next((phrase for phrase in _PHRASES if phrase.text in str(error)), None)
    if phrase is None:
        return None
    place, label, remedy = caller_place(), "within this call", phrase.remedy
    notes: Tuple[str, ...] = ()
    raised = find_raising_frame(error)
    if raised is not None:
        place, label, notes = raised[1], "the device stopped here", _module_notes(raised[0], model)
    elif phrase.code == "C006":
        path, _, name = _reassigned_name(str(error)).rpartition(".")
        remedy = remedy.replace("NAME", name)
        place, label = find_assignment(_class_of(model, path), name) or place, ""
    kind = OptionError if phrase.code.startswith("P") else CaptureError
    said = f"the device says: {_first_line(str(error))}"
    return kind.of(phrase.code, place=place, label=label, notes=(*notes, said), help=remedy)


def _module_notes(frame: FrameType, model: Optional[nn.Module]) -> Tuple[str, ...]:
    """Name the module whose method `frame` runs, as a capture does."""
    module = frame.f_locals.get("self")
    if model is None or not isinstance(module, nn.Module):
        return ()
    kind = type(module).__name__
    path = next((name for name, known in model.named_modules() if known is module), "") or kind
    return (f"the module is `{path}` ({kind})",)


def _reassigned_name(vendor_text: str) -> str:
    named = re.search(r"(?:Buffer|Parameter) (\S+) is ", vendor_text)
    return named.group(1) if named else ""


def _class_of(model: Optional[nn.Module], path: str) -> type:
    try:
        return type(model.get_submodule(path)) if model is not None else object
    except AttributeError:
        return object


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def refuse_loss_without_gradient(executor: Any) -> None:
    """Raise CaptureError L003 if no parameter of a compiled training `executor` gets a gradient.

    A backend that names no tensors cannot be asked.
    """
    names = executor.getTensorNames()
    if names and not any(name.startswith("Gradient___") for name in names):
        raise CaptureError.of(
            "L003",
            message="the loss does not depend on any trainable parameter",
            notes=("it was computed under `torch.no_grad()` or from detached tensors",),
            help="remove the `detach()` or `no_grad()` between the parameters and the loss",
        )
