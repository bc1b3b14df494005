"""Tensors without values that are laid out as a new one would be: what the rules for shapes work on, and make."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

__all__ = [
    "UnknownShape",
    "are_floats",
    "are_numbers",
    "are_plain",
    "broadcast_shapes",
    "choose_strides",
    "expect",
    "fits",
    "has_any_layout",
    "is_contiguous",
    "is_in_order",
    "is_turned",
    "new_tensor",
]

_FLOATS = frozenset([torch.float32, torch.float16, torch.bfloat16, torch.float64])


class UnknownShape(Exception):  # noqa: N818 - it is no error: torch's own rules are asked instead
    """A rule does not know what an operator makes of these arguments, or they are wrong."""


def expect(is_known: bool) -> None:
    """Leave it to torch what an operator makes of its arguments, unless they are known ones."""
    if not is_known:
        raise UnknownShape


def new_tensor(shape: Sequence[int], like: torch.Tensor, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """Return a contiguous tensor without values, of the type of `like` where no other is given."""
    return torch.empty(tuple(shape), dtype=dtype or like.dtype, device="meta")


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` is not empty and lies in memory as a new one does; strides of sizes 1 do not matter."""
    # torch calls empty tensors contiguous whatever their strides are
    return tensor.layout == torch.strided and 0 not in tensor.shape and tensor.is_contiguous()


def has_any_layout(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` has strides, whatever they are."""
    return tensor.layout == torch.strided


def is_in_order(tensor: torch.Tensor) -> bool:
    """Tell whether the dimensions of `tensor` follow each other in memory as those of a new one, perhaps with gaps."""
    if is_contiguous(tensor):
        return True
    shape, strides = tensor.shape, tensor.stride()
    # a size of 1 may have any stride, and one that is expanded has stride 0
    is_full = tensor.layout == torch.strided and 0 not in shape and 1 not in shape and strides[-1] > 0
    return is_full and all(outer > inner for outer, inner in zip(strides, strides[1:]))


def is_turned(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` fills its memory without gaps, its dimensions in any order; sizes of 1 have no order."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size < 2 or stride != step:
            return False
        step *= size
    return tensor.layout == torch.strided


def are_plain(*tensors: Any, layout: Callable[[torch.Tensor], bool] = is_contiguous) -> bool:
    """Tell whether the given tensors, None left out, are of one floating-point type and of that `layout`."""
    given = [tensor for tensor in tensors if tensor is not None]
    if not all(isinstance(tensor, torch.Tensor) for tensor in given):
        return False
    dtype = given[0].dtype
    return dtype in _FLOATS and all(tensor.dtype == dtype and layout(tensor) for tensor in given)


def are_floats(*tensors: torch.Tensor) -> bool:
    """Tell whether the tensors are of one floating-point type, not empty, and in memory in any order."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(
        tensor.dtype == dtype and tensor.layout == torch.strided and 0 not in tensor.shape for tensor in tensors
    )


def broadcast_shapes(*shapes: Sequence[int]) -> Tuple[int, ...]:
    """Return the shape of what an operator makes of tensors of these shapes, element by element.

    Raises UnknownShape where they do not fit one another.

    >>> broadcast_shapes((3, 1), (2, 1, 4))
    (2, 3, 4)
    """
    found: List[int] = [1] * max(map(len, shapes))
    for shape in shapes:
        for place, size in zip(range(-len(shape), 0), shape):
            expect(size in (1, found[place]) or found[place] == 1)
            found[place] = max(found[place], size)
    return tuple(found)


def choose_strides(shape: Sequence[int], *operands: torch.Tensor) -> Tuple[int, ...]:
    """Return how torch lays out what an operator makes of `operands`, element by element; nothing in `shape` is 0.

    The dimensions follow each other in memory as in the first operand that says something about two of them, without
    gaps: the order that ATen's TensorIterator chooses (`reorder_dimensions` and `fast_set_up` in TensorIterator.cpp).
    Raises UnknownShape for sizes of 1, the strides of which say nothing, in a tensor that is not contiguous.
    """
    expect(all(operand.is_contiguous() or 1 not in operand.shape for operand in operands))
    first = operands[0]
    if all(operand.shape == first.shape for operand in operands):
        if all(operand.is_contiguous() for operand in operands):
            return tuple(torch.empty(shape, device="meta").stride())
        if is_turned(first) and all(operand.stride() == first.stride() for operand in operands):
            return tuple(first.stride())
    strides = [_stretch_strides(operand, shape) for operand in operands]
    order = list(reversed(range(len(shape))))
    for last in range(1, len(order)):
        place = last
        for other in reversed(range(last)):
            comparison = _compare_dimensions(order[other], order[place], shape, strides)
            if comparison > 0:
                order[other], order[place] = order[place], order[other]
                place = other
            elif comparison < 0:
                break
    found, step = [0] * len(shape), 1
    for dim in order:
        found[dim] = step
        step *= shape[dim]
    return tuple(found)


def _stretch_strides(tensor: torch.Tensor, shape: Sequence[int]) -> List[int]:
    """Return the strides of `tensor` stretched to `shape`: 0 where it is repeated."""
    num_new = len(shape) - tensor.dim()
    own = (
        0 if size == 1 != wanted else stride
        for size, stride, wanted in zip(tensor.shape, tensor.stride(), shape[num_new:])
    )
    return [0] * num_new + list(own)


def _compare_dimensions(one: int, other: int, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    """Return -1 if dimension `one` is the inner one, 1 if `other` is, 0 if no operand says."""
    for of_operand in strides:
        inner, outer = of_operand[one], of_operand[other]
        if 0 in (inner, outer):
            continue
        if inner != outer:
            return -1 if inner < outer else 1
        if shape[one] > shape[other]:
            return 1
    return 0


def are_numbers(*values: Any) -> bool:
    """Tell whether all values are integers or floats; None counts as left out, and booleans are neither."""
    return all(value is None or type(value) in (int, float) for value in values)


def fits(inner: Sequence[int], outer: Sequence[int]) -> bool:
    """Tell whether a tensor of shape `inner` is stretched to `outer` when they meet in an operator.

    >>> fits((3, 1), (2, 3, 4)), fits((2, 3, 4), (3, 1))
    (True, False)
    """
    return len(inner) <= len(outer) and all(a in (1, b) for a, b in zip(reversed(inner), reversed(outer)))
