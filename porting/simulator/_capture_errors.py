"""PopTorch's words for what a capture refuses, with the toolkit's explanation below them."""

from __future__ import annotations

from typing import Callable, Dict

from torch._subclasses.fake_tensor import DynamicOutputShapeException

from ..diagnostics import CaptureError, Finding, render
from .errors import Error

__all__ = ["DynamicShapeError", "vendor_error"]


class DynamicShapeError(Error, DynamicOutputShapeException):
    """Reading with a boolean mask: PopTorch lets torch's own exception through here."""

    def __init__(self, text: str) -> None:
        Error.__init__(self, text)


_HOST_READ = (
    "aten::item is only supported in eager mode, but was intercepted in a static graph. This means an IPU to CPU copy "
    "was triggered before the end of the graph, for example by calling tensor.item(). Please ensure that any such "
    "copies are removed."
)
_ILLEGAL_MOVE = (
    'Illegal move to CPU (via `.to("cpu")`) when using the dispatcher. Instead, return this output as an IPU tensor.'
)
_TYPE_NAMES: Dict[str, str] = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


def _dynamic_shape(finding: Finding) -> str:
    operator = (finding.message or "").split("`")[1] if "`" in (finding.message or "") else "the operator"
    return (
        f"Operations using {operator} are unsupported because the output shape is determined by the tensor values. "
        "The IPU cannot support dynamic output shapes"
    )


def _cpu_tensor(finding: Finding) -> str:
    facts = dict(note.split("=", 1) for note in finding.notes if "=" in note)
    kind = _TYPE_NAMES.get(facts.get("dtype", ""), facts.get("dtype", ""))
    return (
        f"Expected an IPU tensor but got tensor(device=cpu, shape={facts.get('shape', '')}, dtype={kind}). Constant "
        'tensors should be moved explicitly to the IPU, via cpu_tensor.to("ipu")'
    )


_MESSAGES: Dict[str, Callable[[Finding], str]] = {
    "C001": lambda finding: _HOST_READ,
    "C002": _dynamic_shape,
    "C003": _cpu_tensor,
    "C004": lambda finding: _ILLEGAL_MOVE,
    "C012": lambda finding: f"Unsupported input type: {finding.message}",
    "L004": lambda finding: "Couldn't find a loss in graph!",
    "L005": lambda finding: (
        "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
        "poptorch.identity_loss."
    ),
}


def vendor_error(error: CaptureError) -> Error:
    """Return the `poptorch.Error` for `error`: the vendor's message first; `.finding` keeps the structured form."""
    finding = error.finding
    message = _MESSAGES.get(finding.code, lambda found: found.message or "")(finding)
    is_mask_read = finding.code == "C002" and "aten::index`" in (finding.message or "")
    result = (DynamicShapeError if is_mask_read else Error)(f"{message}\n\n{render(finding)}")
    result.message = message
    result.finding = finding  # type: ignore[attr-defined]
    return result


