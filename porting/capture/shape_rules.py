"""Shape rules of usual operators: shapes and types of their results, by arithmetic on Python numbers.

torch's own rules for tensors without values cost about a millisecond for each operator, and load its compiler. These
cover contiguous tensors of one floating-point type, and answer `UNKNOWN` for all else and for all that is wrong.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .device_operators import device_operator
from .layer_shapes import LAYERS
from .plain_shapes import UNKNOWN, are_numbers, are_plain, fits, is_contiguous, is_in_order, new_tensor

__all__ = ["rule_for"]

aten = torch.ops.aten


def rule_for(operator: Any) -> Optional[Callable[..., Any]]:
    """Return what tells the results of `operator` on torch's meta tensors, or `UNKNOWN` for some; None without one."""
    special = device_operator(operator)
    return _RULES.get(operator) if special is None else special.rule


# Integer types that stay as they are beside a Python integer.
_COUNTS = frozenset([torch.int64, torch.int32])

# -- element by element -----------------------------------------------------------------------------------------------


def _same(tensor: torch.Tensor, *numbers: Any) -> Any:
    is_known = are_plain(tensor, layout=is_in_order) and are_numbers(*numbers)
    return new_tensor(tensor.shape, tensor) if is_known else UNKNOWN


def _same_in_place(tensor: torch.Tensor, *numbers: Any) -> Any:
    return tensor if are_plain(tensor, layout=is_in_order) and are_numbers(*numbers) else UNKNOWN


def _gelu(tensor: torch.Tensor, *, approximate: str = "none") -> Any:
    return _same(tensor) if approximate in ("none", "tanh") else UNKNOWN


def _broadcast(one: torch.Tensor, other: Any) -> Optional[Tuple[int, ...]]:
    """Return the shape of the result if one of the operands has it already, and None where that is not known."""
    if type(other) is int and one.dtype in _COUNTS:
        return tuple(one.shape) if is_contiguous(one) else None
    if type(other) in (int, float):
        return tuple(one.shape) if are_plain(one, layout=is_in_order) else None
    if not isinstance(other, torch.Tensor) or not are_plain(one, other, layout=is_in_order):
        return None
    if one.dim() == 0 or other.dim() == 0:
        return tuple(one.shape if other.dim() == 0 else other.shape)
    return next((tuple(a.shape) for a, b in ((one, other), (other, one)) if fits(b.shape, a.shape)), None)


def _binary(one: torch.Tensor, other: Any, *, alpha: Any = 1) -> Any:
    if not are_numbers(alpha):
        return UNKNOWN
    dtype = _wider_type(one, other)
    if dtype is not None:
        # shapes do not depend on types
        one, other = (_of_type(value, dtype) for value in (one, other))
    shape = _broadcast(one, other)
    return UNKNOWN if shape is None else new_tensor(shape, one)


def _wider_type(one: torch.Tensor, other: Any) -> Optional[torch.dtype]:
    """Return the type of a result of two floating-point types; None for one type, and where a scalar is among them."""
    if not isinstance(other, torch.Tensor) or one.dtype == other.dtype or 0 in (one.dim(), other.dim()):
        return None
    are_floats = one.dtype.is_floating_point and other.dtype.is_floating_point
    return torch.promote_types(one.dtype, other.dtype) if are_floats else None


def _of_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="meta")


def _binary_in_place(one: torch.Tensor, other: Any, *, alpha: Any = 1) -> Any:
    shape = _broadcast(one, other) if are_numbers(alpha) else None
    return one if shape == tuple(one.shape) else UNKNOWN


def _quotient(one: torch.Tensor, other: Any) -> Any:
    return _binary(one, other) if one.dtype.is_floating_point else UNKNOWN


def _quotient_in_place(one: torch.Tensor, other: Any) -> Any:
    return _binary_in_place(one, other) if one.dtype.is_floating_point else UNKNOWN


def _comparison(one: torch.Tensor, other: Any) -> Any:
    shape = _broadcast(one, other)
    return UNKNOWN if shape is None else new_tensor(shape, one, torch.bool)


def _copy_in_place(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    return target if fits(source.shape, target.shape) else UNKNOWN


def _power(tensor: torch.Tensor, exponent: Any) -> Any:
    return _same(tensor, exponent)


def _dropout(tensor: torch.Tensor, p: float, train: bool) -> Any:
    return _same(tensor) if 0 <= p <= 1 and isinstance(train, bool) else UNKNOWN


def _clone(tensor: torch.Tensor) -> Any:
    return _with_same_strides(tensor, tensor.dtype)


def _with_same_strides(tensor: torch.Tensor, dtype: torch.dtype) -> Any:
    """Copy as torch does, which keeps the strides of sizes 1."""
    if not is_contiguous(tensor):
        return UNKNOWN
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="meta")


def _contiguous(tensor: torch.Tensor) -> Any:
    return tensor if is_contiguous(tensor) else new_tensor(tensor.shape, tensor) if 0 not in tensor.shape else UNKNOWN


def _filled(shape: Sequence[int], *, dtype: Optional[torch.dtype] = None) -> Any:
    return torch.empty(tuple(shape), dtype=dtype or torch.get_default_dtype(), device="meta")


def _filled_like(tensor: torch.Tensor, *, dtype: Optional[torch.dtype] = None) -> Any:
    return _with_same_strides(tensor, dtype or tensor.dtype)


def _filled_of_type(tensor: torch.Tensor, shape: Sequence[int], *, dtype: Optional[torch.dtype] = None) -> Any:
    return _filled(shape, dtype=dtype or tensor.dtype)


def _to_dtype(
    tensor: torch.Tensor,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Optional[torch.memory_format] = None,
) -> Any:
    if memory_format not in (None, torch.preserve_format):
        return UNKNOWN
    if dtype == tensor.dtype and not copy:
        return tensor
    return _with_same_strides(tensor, dtype)


def _softmax(tensor: torch.Tensor, dim: int, dtype: Optional[torch.dtype] = None) -> Any:
    is_known = dtype is None and are_plain(tensor) and -tensor.dim() <= dim < tensor.dim()
    return new_tensor(tensor.shape, tensor) if is_known else UNKNOWN


# -- products, sums, losses -------------------------------------------------------------------------------------------


def _matmul(one: torch.Tensor, other: torch.Tensor) -> Any:
    if not are_plain(one, other) or min(one.dim(), other.dim()) < 2 or one.shape[-1] != other.shape[-2]:
        return UNKNOWN
    if other.dim() != 2 and one.shape[:-2] != other.shape[:-2]:
        return UNKNOWN
    return new_tensor((*one.shape[:-1], other.shape[-1]), one)


def _square_matmul(num_dimensions: int) -> Callable[..., Any]:
    def product(one: torch.Tensor, other: torch.Tensor) -> Any:
        return _matmul(one, other) if one.dim() == other.dim() == num_dimensions else UNKNOWN

    return product


def _sum(tensor: torch.Tensor) -> Any:
    return new_tensor((), tensor) if are_plain(tensor) else UNKNOWN


def _sum_over(tensor: torch.Tensor, dims: Optional[Sequence[int]], keepdim: bool = False) -> Any:
    if not dims or not are_plain(tensor) or any(not -tensor.dim() <= dim < tensor.dim() for dim in dims):
        return UNKNOWN
    gone = {dim % tensor.dim() for dim in dims}
    sizes = ((1 if dim in gone else size, dim in gone) for dim, size in enumerate(tensor.shape))
    return new_tensor([size for size, is_gone in sizes if keepdim or not is_gone], tensor)


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    if not are_plain(*tensors) or not -first.dim() <= dim < first.dim():
        return UNKNOWN
    axis = dim % first.dim()
    rests = {(*tensor.shape[:axis], *tensor.shape[axis + 1 :]) for tensor in tensors}
    if len(rests) != 1 or any(tensor.dim() != first.dim() for tensor in tensors):
        return UNKNOWN
    return new_tensor((*first.shape[:axis], sum(t.shape[axis] for t in tensors), *first.shape[axis + 1 :]), first)


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    first = tensors[0]
    is_known = are_plain(*tensors) and len({tensor.shape for tensor in tensors}) == 1
    if not is_known or not -first.dim() - 1 <= dim <= first.dim():
        return UNKNOWN
    axis = dim % (first.dim() + 1)
    return new_tensor((*first.shape[:axis], len(tensors), *first.shape[axis:]), first)


def _reduced(shape: Sequence[int], like: torch.Tensor, reduction: int) -> Any:
    return new_tensor(shape if reduction == 0 else (), like) if reduction in (0, 1, 2) else UNKNOWN


def _class_loss(
    logits_BC: torch.Tensor,  # noqa: N803
    target: torch.Tensor,
    weight: Optional[torch.Tensor] = None,
    reduction: int = 1,
    _ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Lose by logits or log-probabilities (samples, classes, ...) for the indices of the right classes."""
    shape = tuple(logits_BC.shape)
    if not are_plain(logits_BC) or weight is not None or target.dtype != torch.int64 or not is_contiguous(target):
        return UNKNOWN
    if len(shape) < 2 or tuple(target.shape) != (shape[0], *shape[2:]) or not 0 <= label_smoothing < 1:
        return UNKNOWN
    return _reduced(target.shape, logits_BC, reduction)


def _difference_loss(one: torch.Tensor, other: torch.Tensor, reduction: int = 1) -> Any:
    is_known = are_plain(one, other) and one.shape == other.shape
    return _reduced(one.shape, one, reduction) if is_known else UNKNOWN


def _threshold_loss(one: torch.Tensor, other: torch.Tensor, reduction: int = 1, threshold: float = 1.0) -> Any:
    return _difference_loss(one, other, reduction) if threshold > 0 else UNKNOWN


def _binary_cross_entropy(one: torch.Tensor, other: torch.Tensor, weight: Any = None, reduction: int = 1) -> Any:
    return _difference_loss(one, other, reduction) if weight is None else UNKNOWN


def _binary_cross_entropy_with_logits(
    one: torch.Tensor, other: torch.Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return _difference_loss(one, other, reduction) if weight is None and pos_weight is None else UNKNOWN


def _list_overloads(names: str, overload: str = "default") -> List[Any]:
    return [getattr(getattr(aten, name), overload) for name in names.split()]


# Operators that torch's C++ side does for tensors without values just as for all others.
_VIEWS = [
    *_list_overloads(
        "alias chunk detach expand expand_as narrow numpy_T permute reshape reshape_as split_with_sizes squeeze "
        "swapaxes t unsqueeze view view_as"
    ),
    *_list_overloads("movedim select transpose unbind unflatten", "int"),
    *_list_overloads("squeeze", "dim"),
    *_list_overloads("squeeze", "dims"),
    *_list_overloads("slice split", "Tensor"),
    aten.flatten.using_ints,
    aten.split.sizes,
]

_UNARY = _list_overloads(
    "abs clamp clamp_max clamp_min cos elu erf exp hardsigmoid hardswish hardtanh leaky_relu log log_sigmoid mish "
    "neg reciprocal relu relu6 rsqrt selu sigmoid silu sin softplus sqrt square tanh"
)

_RULES: Dict[Any, Callable[..., Any]] = {
    **{operator: operator for operator in _VIEWS},
    **dict.fromkeys(_UNARY, _same),
    **dict.fromkeys(_list_overloads("elu_ hardtanh_ leaky_relu_ relu_ sigmoid_ silu_ tanh_ zero_"), _same_in_place),
    **dict.fromkeys(_list_overloads("add mul sub", "Tensor"), _binary),
    **dict.fromkeys(_list_overloads("add mul rsub sub", "Scalar"), _binary),
    **dict.fromkeys(_list_overloads("add_ mul_ sub_", "Tensor"), _binary_in_place),
    aten.div.Tensor: _quotient,
    aten.div.Scalar: _quotient,
    aten.div_.Tensor: _quotient_in_place,
    **dict.fromkeys(_list_overloads("eq ge gt le lt ne", "Tensor"), _comparison),
    **dict.fromkeys(_list_overloads("eq ge gt le lt ne", "Scalar"), _comparison),
    **dict.fromkeys(_list_overloads("log_softmax softmax", "int"), _softmax),
    **dict.fromkeys(_list_overloads("mean sum"), _sum),
    **dict.fromkeys(_list_overloads("new_empty new_ones new_zeros"), _filled_of_type),
    **dict.fromkeys(_list_overloads("ones zeros"), _filled),
    **dict.fromkeys(_list_overloads("ones_like zeros_like"), _filled_like),
    **dict.fromkeys(_list_overloads("cross_entropy_loss nll_loss_nd"), _class_loss),
    **dict.fromkeys(_list_overloads("l1_loss mse_loss"), _difference_loss),
    **dict.fromkeys(_list_overloads("huber_loss smooth_l1_loss"), _threshold_loss),
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy_with_logits,
    aten.bmm.default: _square_matmul(3),
    aten.cat.default: _cat,
    aten.clone.default: _clone,
    aten.contiguous.default: _contiguous,
    aten.copy_.default: _copy_in_place,
    aten.dropout.default: _dropout,
    aten.gelu.default: _gelu,
    aten.matmul.default: _matmul,
    aten.mean.dim: _sum_over,
    aten.mm.default: _square_matmul(2),
    aten.stack.default: _stack,
    aten.pow.Tensor_Scalar: _power,
    aten.sum.dim_IntList: _sum_over,
    aten.to.dtype: _to_dtype,
    **LAYERS,
}
