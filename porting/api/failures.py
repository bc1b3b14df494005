"""Explain a failed call in the toolkit's words, with the line and the remedy.

Runners hand over what a backend raises.
"""

from __future__ import annotations

import re
from types import FrameType
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from torch import nn

from ..adapters.backend_protocol import Executor
from ..adapters.derivatives import explain_transform
from ..diagnostics import (
    BatchError,
    CaptureError,
    DeviceError,
    Finding,
    OptionError,
    PortingError,
    Severity,
    caller_place,
    find_assignment,
    find_raising_frame,
    take_first_line,
)
from .batch import BatchSignature, find_foreign_device
from .port import Port

__all__ = ["explain_failure", "refuse_loss_without_gradient"]

_DEVICE_FAMILIES = ("S", "D")
_OUT_OF_RANGE = re.compile(r"Target -?\d+ is out of bounds|index out of range in self")


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
    _Phrase(
        "(Got <class 'porting.capture",
        "C014",
        "make in `__init__` what `forward` makes and keeps, such as a copy of a layer, or call the model once before "
        "`to_ipu`",
    ),
    _Phrase(
        "and no longer has it", "D005", "call `ported.destroy()`: the next call compiles the step as the model is then"
    ),
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
    transformed = explain_transform()
    if transformed is not None or isinstance(error, PortingError):
        return transformed
    finding = getattr(error, "finding", None)
    if isinstance(finding, Finding):
        return (DeviceError if finding.code.startswith(_DEVICE_FAMILIES) else CaptureError)(finding)
    finding = find_foreign_device(args, kwargs)
    if finding is None and compiled_for is not None:
        finding = compiled_for.difference(BatchSignature(args, kwargs), remedy=remedy)
    first_line = take_first_line(error)
    if finding is None and "Invalid batch dimension" in str(error):
        return BatchError.at_caller(
            "B004",
            message=f"a batch of {BatchSignature(args, kwargs).rows} rows cannot be cut into equal micro-batches",
            label="this call",
            notes=("rows = micro-batch x accumulation x replicas x device iterations", first_line),
            help="hand over `options.samples_per_call` rows: `ported.dataloader(...)` makes such batches",
        )
    # torch's words about a label that is no class, or about an index into a table
    if finding is None and isinstance(error, IndexError) and _OUT_OF_RANGE.search(str(error)):
        return BatchError.at_caller(
            "B013",
            label="this call",
            notes=(f"torch says: {first_line}", "an IPU would not notice, and train with some other number"),
            help=(
                "labels count from 0 to the number of classes less one, and tokens to the rows of the embedding less "
                "one",
                "for samples that are not to count, give the loss an `ignore_index`",
            ),
        )
    if finding is not None:
        return BatchError(finding)
    phrase = next((phrase for phrase in _PHRASES if phrase.text in str(error)), None)
    return None if phrase is None else _explain_phrase(phrase, error, first_line, model)


def _explain_phrase(phrase: _Phrase, error: BaseException, first_line: str, model: Optional[nn.Module]) -> PortingError:
    place, label, remedy = caller_place(), "within this call", phrase.remedy
    notes: Tuple[str, ...] = ()
    raised = find_raising_frame(error)
    if raised is not None:
        place, label, notes = raised[1], "the device stopped here", _note_module(raised[0], model)
    elif phrase.code == "C006":
        named = re.search(r"(?:Buffer|Parameter) (\S+) is ", str(error))
        path, _, name = (named.group(1) if named else "").rpartition(".")
        remedy = remedy.replace("NAME", name)
        modules = {} if model is None else dict(model.named_modules(remove_duplicate=False))
        place, label = find_assignment(type(modules.get(path)), name) or place, ""
    kind = {"P": OptionError, "D": DeviceError}.get(phrase.code[0], CaptureError)
    said = f"the device says: {first_line}"
    return kind.of(phrase.code, place=place, label=label, notes=(*notes, said), help=remedy, severity=Severity.ERROR)


def _note_module(frame: FrameType, model: Optional[nn.Module]) -> Tuple[str, ...]:
    """Name the module whose method `frame` runs, as a capture does."""
    module = frame.f_locals.get("self")
    if model is None or not isinstance(module, nn.Module):
        return ()
    kind = type(module).__name__
    path = next((name for name, known in model.named_modules() if known is module), "") or kind
    return (f"the module is `{path}` ({kind})",)


def refuse_loss_without_gradient(port: Port, executor: Executor) -> None:
    """Raise CaptureError L003 if no parameter of a compiled training `executor` gets a gradient.

    A backend that names no tensors cannot be asked.
    """
    step = port.backend.compiled_step(executor)
    if step is not None and step.graph.loss_has_gradient:
        # the capture has seen it, and naming all tensors of a step takes longer than many a check
        return
    names = executor.getTensorNames()
    if names and not any(name.startswith("Gradient___") for name in names):
        raise CaptureError.of(
            "L003",
            message="the loss does not depend on any trainable parameter",
            notes=("it was computed under `torch.no_grad()` or from detached tensors",),
            help="remove the `detach()` or `no_grad()` between the parameters and the loss",
        )
