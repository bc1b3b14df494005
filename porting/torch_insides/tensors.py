"""Name the private parts of tensors and their memory; what watches, keeps or stands for tensors uses them."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch

from .exchanged import exchange
from .parts import Parts, look_up

__all__ = [
    "GRADIENT_HOOKS",
    "PARTS",
    "TENSOR_BASE",
    "count_storage_uses",
    "exchange_printing",
    "identify_storage",
    "is_marked_as_parameter",
    "is_zero_tensor",
    "make_wrapper",
    "mark_as_parameter",
    "probe",
    "propagate_shapes",
    "read_base",
    "read_version",
]

PARTS = Parts("no step can be captured")
probe = PARTS.probe

TENSOR_BASE: Any = getattr(torch._C, "TensorBase", None) or PARTS.find("torch._C:_TensorBase", instead=torch.Tensor)
"""The class below `torch.Tensor`, whose attributes no wrapper has replaced; torch 2.0 has it under another name."""

_EXAMPLE = torch.empty(0)

read_version: Callable[[Any], int] = PARTS.find("torch:Tensor._version.__get__")
"""Return how often a tensor was written to, without the attribute hooks of its class."""

read_base: Callable[[Any], Optional[torch.Tensor]] = PARTS.reader(
    "_base", of=_EXAMPLE, instead=lambda _tensor: None, loses="a compiled step is bound to its state in each call"
)
"""Return the tensor that a view was taken of; None for what is no view."""

GRADIENT_HOOKS: List[Callable[[Any], Any]] = [
    getattr(TENSOR_BASE, name).__get__
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks")  # torch 2.0 has no others than the first
    if hasattr(TENSOR_BASE, name)
]
"""Functions that return the hooks of a tensor, one for each kind of hook."""

identify_storage: Callable[[Any], int] = PARTS.reader(
    "_cdata", of=_EXAMPLE.untyped_storage(), instead=id, loses="tensors without values never share memory"
)
"""Return a number that tensors sharing this storage have in common, also where it has no memory."""

count_storage_uses: Optional[Callable[[int], int]] = PARTS.find(
    "torch._C:_storage_Use_Count", instead=None, loses="memory of batches and weights is not used again"
)
"""Return how many tensors use a storage, by its number; None where torch does not tell."""

is_zero_tensor: Callable[[Any], bool] = PARTS.find(
    "torch:Tensor._is_zerotensor", instead=lambda _tensor: False, loses="gradients that are zero everywhere may fail"
)
"""Tell whether a tensor is autograd's shorthand for zeros, to which nobody can write."""

make_wrapper: Any = PARTS.find("torch:Tensor._make_wrapper_subclass")
"""Make a tensor of a class of tensors, without memory of its own."""


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Let `isinstance(tensor, nn.Parameter)` be true of a tensor of another class."""
    tensor._is_param = True


def is_marked_as_parameter(tensor: torch.Tensor) -> bool:
    """Tell whether `mark_as_parameter` was called for a tensor."""
    return bool(getattr(tensor, "_is_param", False))


_PRINTED = "torch._tensor_str:_tensor_str"
PARTS.find(_PRINTED, instead=None, loses="printing a tensor of the device fails")


def exchange_printing(make: Callable[[Any], Any]) -> None:
    """Let `make(torch's function)` write the values of tensors that are printed, from a tensor and an indentation."""
    if _PRINTED not in PARTS.losses:
        exchange(look_up("torch._tensor_str:"), "_tensor_str", make)


propagate_shapes: Callable[[Any], None] = PARTS.find(
    "torch._C:_jit_pass_propagate_shapes_on_graph",
    instead=lambda _graph: None,
    loses="graphs of TorchScript get no shapes from `propagateInputShapes`",
)
"""Give the values in a TorchScript graph the shapes that follow from its inputs."""
