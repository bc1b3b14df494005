"""Report in PopTorch's words what a capture refuses or narrows. The toolkit's own explanation follows below them.

`compile_model` and the graph checks raise these errors, with notes of the step's other faults.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import torch
from torch import nn

from ...analysis.operator_support import collect_attention, find_refused_call, iter_calls
from ...capture import StepGraph
from ...capture.dtypes import NARROWED
from ...capture.graph_flow import output_nodes
from ...capture.plain_values import dtype_name
from ...capture.second_run import without_trace
from ...diagnostics import CaptureError, Finding, collected_refusals, render, say_number
from ...host_tensors import host_tensors
from ...module_attributes import collect_plain_modules
from ...torch_insides.fake_tensors import DynamicOutputShapeException
from .._logging import cpp_log
from ..errors import Error

__all__ = ["CaptureRefusal", "DynamicShapeRefusal", "log_coercions", "make_vendor_error", "name_other_faults"]

_MOST_FAULTS = 5


class CaptureRefusal(Error):
    """A refusal of a capture: `message` is PopTorch's text, `finding` the same as data, `str` has both."""

    def __init__(self, message: str, finding: Finding) -> None:
        # the one that PopTorch finds in its Python part
        is_python = finding.code == "C006"
        prefix = "'poptorch_py_error': " if is_python else ""
        super().__init__(f"{prefix}{message}\n\n{render(finding)}")
        self.message = message
        self.finding = finding
        self.type = "poptorch_py_error" if is_python else Error.type

    # processes hand errors to one another: what is pickled by its text has no finding
    def __reduce__(self) -> Any:
        return type(self), (self.message, self.finding)


class DynamicShapeRefusal(CaptureRefusal, DynamicOutputShapeException):
    """A refusal to read with a boolean mask, for which PopTorch passes on torch's own exception."""

    def __init__(self, message: str, finding: Finding) -> None:
        CaptureRefusal.__init__(self, message, finding)
        self.func = None  # type: ignore[assignment]
        self.args = (f"{message}\n\n{render(finding)}",)

    # Torch's exception is a data class, which takes the hash, the text and the representation away.
    __hash__ = Exception.__hash__
    __repr__ = Exception.__repr__


# Operators that have a static form, which PopTorch asks for.
_VALUE_SIZED = {
    "one_hot": "OneHot num classes must be specified and must be constant.",
    "bincount": (
        "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform the minimum length is "
        "also the maximum length."
    ),
}
# The names of torch's types in PopTorch's messages.
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


def _describe_dynamic_shape(finding: Finding) -> str:
    quoted = re.search(r"`aten::([^`]+)`", finding.message or "")
    operator = quoted.group(1) if quoted else ""
    # PopTorch finds all of these by the operator that they come down to.
    return _VALUE_SIZED.get(operator) or (
        "Operations using aten::nonzero are unsupported because the output shape is determined by the tensor values. "
        "The IPU cannot support dynamic output shapes."
    )


def _describe_cpu_tensor(finding: Finding) -> str:
    facts = dict(note.split("=", 1) for note in finding.notes if "=" in note)
    if not facts:
        return "An input tensor to an IPU model can not have requires_grad set to True."
    kind = _TYPE_NAMES.get(facts.get("dtype", ""), facts.get("dtype", ""))
    return (
        f"Expected an IPU tensor but got tensor(device=cpu, shape={facts.get('shape', '')}, dtype={kind}). Constant "
        'tensors should be moved explicitly to the IPU, via cpu_tensor.to("ipu")'
    )


def _describe_illegal_move(finding: Finding) -> str:
    moved = re.search(r"(?:to|on) `([^`]+)`", finding.message or "")
    device = moved.group(1) if moved else "cpu"
    return (
        f'Illegal move to {"CPU" if device == "cpu" else device} (via `.to("{device}")`) when using the dispatcher. '
        "Instead, return this output as an IPU tensor."
    )


def _describe_unsupported_type(finding: Finding) -> str:
    message = finding.message or ""
    named = re.findall(r"torch\.\w+", message)
    kind = named[-1] if named else ""
    if message.startswith("`aten::"):
        return f"Returning a {kind} is not supported. Unsupported input type {kind}: {message}"
    return f"Unsupported input type {kind}: Unsupported tensor input type from pytorch: {message}"


_MESSAGES: Dict[str, Callable[[Finding], str]] = {
    "C001": lambda finding: (
        "aten::item is only supported in eager mode, but was intercepted in a static graph. This means an IPU to CPU "
        "copy was triggered before the end of the graph, for example by calling tensor.item(). Please ensure that any "
        "such copies are removed."
    ),
    "C002": _describe_dynamic_shape,
    "C003": _describe_cpu_tensor,
    "C004": _describe_illegal_move,
    "C012": _describe_unsupported_type,
    "L004": lambda finding: "Couldn't find a loss in graph!",
    "L005": lambda finding: (
        "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
        "poptorch.identity_loss."
    ),
}


def make_vendor_error(error: CaptureError) -> CaptureRefusal:
    """Return the `poptorch.Error` for `error`: PopTorch's message first, then the finding with its place and help."""
    finding = error.finding
    message = _MESSAGES.get(finding.code, lambda found: found.message or "")(finding)
    is_mask_read = finding.code == "C002" and "aten::index`" in (finding.message or "")
    refusal: Type[CaptureRefusal] = DynamicShapeRefusal if is_mask_read else CaptureRefusal
    return refusal(message, finding)


def name_other_faults(error: CaptureError, capture: Callable[..., StepGraph], model: nn.Module) -> CaptureError:
    """Return `error` with notes of the other faults, found by a further `capture` that continues after each fault.

    It takes `failures` as `capture_step` does, leaves `model` unchanged, and writes nothing.
    """
    graphs: List[StepGraph] = []
    with without_trace(list(collect_plain_modules(model).items())), collected_refusals() as found:
        ends: List[Exception] = []
        try:
            graphs.append(capture(failures=ends))
        except Exception as end:  # the fault that is raised is known; this one only ends the search
            ends.append(end)
    first = error.finding
    texts = [_describe_fault(other.finding) for other in found if other.finding.place != first.place]
    attention = collect_attention(model)
    for call in (call for graph in graphs for call in iter_calls(graph)):
        refused = find_refused_call(call, attention=attention)
        if refused is not None:
            texts.append(f"C017 at {call.node.meta.get('place')}: no `aten::{refused.name}` in this form")
    texts = list(dict.fromkeys(texts))
    if not texts:
        return error
    notes = [f"{say_number(len(texts), 'other fault')} in the same step:", *texts[:_MOST_FAULTS]]
    if len(texts) > _MOST_FAULTS:
        notes.append(f"and {len(texts) - _MOST_FAULTS} more: `porting.check(model, loss, batch)` tells all")
    return CaptureError(dataclasses.replace(first, notes=(*first.notes, "\n  ".join(notes))))


def _describe_fault(finding: Finding) -> str:
    where = f" at {finding.place}" if finding.place is not None else ""
    return f"{finding.code}{where}: {finding.message}"


def log_coercions(graph: StepGraph, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Log narrowed inputs and parameters, a buffer of each type, all tensors that arise, an output of each type."""
    changes = {
        before: f"from {_TYPE_NAMES[dtype_name(before)]} to {_TYPE_NAMES[dtype_name(after)]}"
        for before, after in NARROWED.items()
    }
    hosts = host_tensors(model)
    parameters = [host.tensor for host in hosts if host.kind == "parameter"]
    buffers = {host.tensor.dtype: host.tensor for host in reversed(hosts) if host.kind == "buffer"}
    for tensor in (*inputs, *parameters, *buffers.values()):
        if tensor.dtype in NARROWED:
            where = f"(ptr {tensor.data_ptr():#x})"
            cpp_log("warning", f"[DISPATCHER] Tensor {where} type coerced {changes[tensor.dtype]}")
    for dtype, number in graph.coercions:
        cpp_log("warning", f"[DISPATCHER] Type coerced {changes[dtype]} for tensor id {number}")
    for dtype, name in _collect_narrowed_outputs(graph).items():
        cpp_log(
            "warning",
            f"{name}: {dtype} is not supported natively on IPU, loss of range/precision may occur. We will only warn "
            "on the first instance.",
        )


def _collect_narrowed_outputs(graph: StepGraph) -> Dict[torch.dtype, str]:
    """Return the first output of each narrowed type, by its name in the graph."""
    types: Dict[str, Tuple[Optional[torch.dtype], str]] = {
        node.name: (info.host_dtype, info.name) for node, info in zip(graph.placeholders, graph.entering)
    }
    first: Dict[torch.dtype, str] = {}
    for node in output_nodes(graph.graph)[: len(graph.outputs)]:
        dtype, name = types.get(node.name, (None, node.name))
        if dtype not in NARROWED:
            # no tensor that enters: one that an operator of the graph made
            dtype = node.meta.get("coerced_from")
        if dtype in NARROWED:
            first.setdefault(dtype, name)
    return first
