"""Tensors without values that are laid out as a new one would be: what the rules for shapes work on, and make."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch

__all__ = [
    "UnknownShape",
    "are_floats",
    "are_numbers",
    "are_plain",
    "combine",
    "expect",
    "fits",
    "has_any_layout",
    "is_contiguous",
    "is_in_order",
    "is_mask",
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
    """Tell whether `tensor` is not empty and has strides, whatever they are."""
    return tensor.layout == torch.strided and 0 not in tensor.shape


def is_in_order(tensor: torch.Tensor) -> bool:
    """Tell whether the dimensions of `tensor` follow each other in memory as those of a new one, perhaps with gaps."""
    if is_contiguous(tensor):
        return True
    shape, strides = tensor.shape, tensor.stride()
    # a size of 1 may have any stride, and one that is expanded has stride 0
    is_full = tensor.layout == torch.strided and 0 not in shape and 1 not in shape and strides[-1] > 0
    return is_full and all(outer > inner for outer, inner in zip(strides, strides[1:]))


def is_mask(value: object) -> bool:
    """Tell whether `value`, used as an index, has as many results as its values say."""
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)


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
    return are_plain(*tensors, layout=has_any_layout)


def combine(one: torch.Tensor, other: torch.Tensor, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """Return what an operator makes of two tensors, element by element, of the type of `one` where no other is given.

    Raises RuntimeError where their shapes do not fit one another, and UnknownShape for sizes of 1, the strides of which
    say nothing, in a tensor that is not contiguous.
    """
    expect(all(tensor.is_contiguous() or 1 not in tensor.shape for tensor in (one, other)))
    # ATen's TensorIterator lays out the results of all such operators alike. Torch replaces the kernel for tensors
    # without values of nearly all of them by one in Python, which loads the compiler: not that of this operator.
    found = torch.ops.aten.hardshrink_backward.default(one, other, 0.0)
    return torch.empty_strided(found.shape, found.stride(), dtype=dtype or one.dtype, device="meta")


def are_numbers(*values: Any) -> bool:
    """Tell whether all values are integers or floats; None counts as left out, and booleans are neither."""
    return all(value is None or type(value) in (int, float) for value in values)


def fits(inner: Sequence[int], outer: Sequence[int]) -> bool:
    """Tell whether a tensor of shape `inner` is stretched to `outer` when they meet in an operator.

    >>> fits((3, 1), (2, 3, 4)), fits((2, 3, 4), (3, 1))
    (True, False)
    """
    return len(inner) <= len(outer) and all(a in (1, b) for a, b in zip(reversed(inner), reversed(outer)))
