"""Name the private parts of torch by which operators are told apart, read and called; capture and engines use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Tuple

import torch

from .parts import Parts

__all__ = [
    "BINDINGS",
    "PARTS",
    "SET_GRAD_ENABLED",
    "OpOverload",
    "call_of",
    "enable_python_dispatcher",
    "has_kernel_of_key",
    "probe",
    "read_schema",
    "split_to_arguments",
]

PARTS = Parts("no step can be captured")
probe = PARTS.probe

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
else:
    OpOverload = PARTS.find("torch._ops:OpOverload")

_EXAMPLE: Any = torch.ops.aten.add.Tensor

read_schema: Callable[[Any], Any] = PARTS.reader("_schema", of=_EXAMPLE)
"""Return the schema of an overload: its name, arguments and returns."""

call_of: Callable[[Any], Any] = PARTS.reader(
    "_op", of=_EXAMPLE, instead=lambda operator: operator, loses="replay passes one more Python function an operator"
)
"""Return the function of an overload, without the Python around it."""

SET_GRAD_ENABLED: Any = PARTS.find("torch._C:_set_grad_enabled")
"""What a recorded graph calls where differentiation is switched on or off."""

enable_python_dispatcher: Any = PARTS.find("torch._dispatch.python:enable_python_dispatcher")

split_to_arguments: Any = PARTS.find("torch._C:_nn._parse_to", loses="`Tensor.to` in `forward` is refused")
"""Return device, dtype, whether to block and memory format of a call of `Tensor.to`."""

has_kernel_of_key: Callable[[str, str], bool] = PARTS.find(
    "torch._C:_dispatch_has_kernel_for_dispatch_key",
    instead=lambda _name, _key: False,
    loses="an operator of PopTorch that is imported anew may be registered twice",
)
"""Tell whether an operator has a kernel for a dispatch key, each by its name."""


def _list_bindings() -> Tuple[Any, ...]:
    found: List[Any] = []
    for name in ("_VariableFunctions", "_nn", "TensorBase", "_linalg", "_special"):
        loss = "some operators are replayed through their schema, about a microsecond slower"
        found.append(PARTS.find(f"torch._C:{name}", instead=None, loses=loss))
    return tuple(bindings for bindings in found if bindings is not None)


BINDINGS = _list_bindings()
"""Where torch keeps functions for operators that are written in C++."""

# -- operators with private names --------------------------------------------------------------------------------------


def _find_operator(name: str, loses: str) -> Any:
    # what a graph does not have is found in no graph: a stand-in is in tables as good as the operator
    return PARTS.find(f"torch:ops.{name}", loses=loses)


TO_COPY: Any = _find_operator("aten._to_copy.default", "casts may be compiled less well")
UNSAFE_VIEW: Any = _find_operator("aten._unsafe_view.default", "views may be laid out less well")
LOG_SOFTMAX: Any = _find_operator("aten._log_softmax", "bands of rounding are narrower for it")
CTC_LOSS: Any = _find_operator("aten._ctc_loss", "steps with a CTC loss are replayed")
CTC_LOSS_BACKWARD: Any = _find_operator("aten._ctc_loss_backward", "steps with a CTC loss are replayed")
NORMALISE_BATCH: Any = _find_operator("aten._native_batch_norm_legit.default", "steps with BatchNorm are replayed")
ATTENTION_GRADIENT: Any = _find_operator(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "steps with attention may be replayed"
)
"""Operators that autograd and torch's decompositions call."""

LINEAR_BY_ONEDNN: Any = PARTS.find(
    "torch:ops.mkldnn._linear_pointwise", instead=None, loses="compiled programs multiply by torch's BLAS alone"
)
"""A linear layer by oneDNN; None where torch has none, as on processors that oneDNN does not support."""

ADAPTIVE_MAXIMA: Tuple[Any, Any] = (
    PARTS.find("torch._C:_nn.adaptive_max_pool2d", instead=None, loses="the remedy of its Python form is not applied"),
    PARTS.find("torch._C:_nn.adaptive_max_pool3d", instead=None, loses="the remedy of its Python form is not applied"),
)
"""The functions below `F.adaptive_max_pool2d` and `F.adaptive_max_pool3d`."""

read_overload_name: Callable[[Any], str] = PARTS.reader(
    "_overloadname",
    of=_EXAMPLE,
    instead=lambda operator: operator.name().partition(".")[2] or "default",
    loses="names of overloads are read from those of operators",
)
"""Return the name of an overload among those of its packet."""
