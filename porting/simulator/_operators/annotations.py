"""Annotate how the device computes, without changing values: memory, recomputation, overlap, loss."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from ...capture.plain_shapes import are_plain, expect, new_tensor
from ...structure import Structure, map_tensors, rebuild
from .._options_impl import require
from ..enums import MatMulSerializationMode, OverlapMode
from .op_library import define_operator, require_argument, return_first

__all__ = [
    "identity_loss",
    "nop",
    "recomputationCheckpoint",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]

_library = torch.ops.poptorch
_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Mark `x` as the loss, after a reduction ("sum", "mean" or "none") over all its elements.

    On the CPU it only reduces. Raises AssertionError for another reduction.

    >>> identity_loss(torch.tensor([1.0, 3.0]), reduction="mean")
    tensor(2.)
    """
    require(reduction in _REDUCTIONS, "Unsupported reduction type!")
    return _library.identity_loss(x, _REDUCTIONS[reduction])


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` through an operator that the device's compiler does not optimize away."""
    require_argument(isinstance(tensor, torch.Tensor), "nop must take a torch.tensor input")
    return _library.nop(tensor)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keep `tensors` for the backward pass where a pipeline stage recomputes activations; values do not change.

    One tensor comes back as itself, several as a tuple, a single list or tuple as such. Raises ValueError for anything
    else than tensors.
    """
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if not all(isinstance(tensor, torch.Tensor) for tensor in given):
        raise ValueError("All inputs must be tensors")
    # a named tuple stays one
    kept = rebuild(given, [_library.recomputation_checkpoint(tensor) for tensor in given])
    return kept[0] if given is tensors and len(kept) == 1 else kept


def serializedMatMul(
    lhs: torch.Tensor, rhs: torch.Tensor, mode: MatMulSerializationMode, factor: int = 0, keep_precision: bool = False
) -> torch.Tensor:
    """Multiply matrices as `torch.matmul` does; the device computes the product in `factor` parts along `mode`."""
    assert isinstance(keep_precision, bool), f"keep_precision must be a bool, got {type(keep_precision)}"
    assert isinstance(factor, int), f"factor must be an int, got {type(factor)}"
    assert isinstance(mode, MatMulSerializationMode), f"mode must be a MatMulSerializationMode, got {type(mode)}"
    return _library.set_matmul_serialization(torch.matmul(lhs, rhs), mode.value, factor, keep_precision)


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """Limit the memory that the operator which makes `tensor` may use on a tile; values do not change."""
    kind = type(tensor)
    require_argument(
        isinstance(tensor, torch.Tensor),
        f"You may only set available memory for torch.tensor values. Pass the output of the operator, not {kind}.",
    )
    return _library.set_available_memory(tensor, available_memory_proportion)


def set_overlap_for_input(input_tensors: Structure, mode: OverlapMode) -> Any:
    """Let the copy of the inputs to the device overlap with computing; values do not change.

    The tensors may be nested in tuples, lists, dictionaries and types with a parser of their own.
    """
    return map_tensors(lambda tensor: _library.set_overlap_for_input(tensor, _read_mode(mode)), input_tensors)


def set_overlap_for_output(output_tensors: Structure, mode: OverlapMode) -> Any:
    """Let the copy of the outputs to the host overlap with computing; values do not change.

    The tensors may be nested in tuples, lists, dictionaries and types with a parser of their own.
    """
    return map_tensors(lambda tensor: _library.set_overlap_for_output(tensor, _read_mode(mode)), output_tensors)


def _read_mode(mode: OverlapMode) -> str:
    assert isinstance(mode, OverlapMode), f"mode must be an OverlapMode, got {type(mode)}"
    return str(mode.value)


def _reduce_loss(x: torch.Tensor, reduction: int) -> torch.Tensor:
    return _choose_reduction(x, reduction)(x)


def _choose_reduction(_x: object, reduction: int) -> Callable[[torch.Tensor], torch.Tensor]:
    named: Dict[int, Any] = {_REDUCTIONS["sum"]: torch.sum, _REDUCTIONS["mean"]: torch.mean}
    found: Callable[[torch.Tensor], torch.Tensor] = named.get(reduction, torch.clone)
    return found


def _infer_reduced(x: torch.Tensor, reduction: int) -> Any:
    expect(are_plain(x))
    return new_tensor(x.shape if reduction == _REDUCTIONS["none"] else (), x)


def _cast_tensor(x: torch.Tensor, dtype: str) -> torch.Tensor:
    types = {"FLOAT": torch.float32, "FLOAT16": torch.float16}
    if dtype not in types:
        raise RuntimeError(f"internal_cast knows the types {', '.join(types)}, not {dtype}")
    return x.to(types[dtype])


# They only compute, so that a graph calls their kernels itself. Those that hand on their argument are their own rule
# for shapes as well.
define_operator(
    "identity_loss(Tensor x, int reduction) -> Tensor",
    _reduce_loss,
    run=_reduce_loss,
    is_pure=True,
    rule=_infer_reduced,
    choose=_choose_reduction,
)
define_operator("internal_cast(Tensor x, str dtype) -> Tensor", _cast_tensor, run=_cast_tensor, is_pure=True)
for _schema in (
    "nop(Tensor x) -> Tensor",
    "set_matmul_serialization(Tensor x, str mode, int factor, bool keep_precision) -> Tensor",
    "set_overlap_for_input(Tensor x, str mode) -> Tensor",
    "set_overlap_for_output(Tensor x, str mode) -> Tensor",
    "recomputation_checkpoint(Tensor x) -> Tensor",
    "set_available_memory(Tensor x, float proportion) -> Tensor",
):
    define_operator(_schema, return_first, run=return_first, is_pure=True, rule=return_first)
