"""Implement `dynamic_slice` and `dynamic_update`, slices whose start is a tensor that the device reads when it runs."""

from __future__ import annotations

import torch

from ..errors import compile_error
from .op_library import define_operator, require_argument

__all__ = ["dynamic_slice", "dynamic_update"]


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """Return `tensor[start : start + size : step]` along `dim`, where `start` is an integer tensor of one element.

    On the device `size` must divide the dimension, and a slice that goes over the end continues at the beginning. On
    the CPU it is a plain slice, which ends there. Raises `poptorch.Error` for arguments of other types, and at
    compilation for sizes that are not positive or do not divide.

    >>> dynamic_slice(torch.arange(6), 0, torch.tensor([2]), 3, 1)
    tensor([2, 3, 4])
    """
    _check_arguments("dynamic_slice", tensor, dim, start, size)
    require_argument(_is_int(step), "Step must be an integer.")
    require_argument(step >= 1, "Slicing step must be at least 1")
    require_argument(not start.is_floating_point(), "Expected integer typed start tensor")
    return torch.ops.poptorch.dynamic_slice(tensor, dim, start, size, step)


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """Return a copy of `input` with `[start : start + size]` along `dim` replaced by `src`.

    `start` is an integer tensor of one element; on the device a slice that goes over the end continues at the
    beginning. Raises `poptorch.Error` for arguments of other types and for a `src` of other dimensions or type, and at
    compilation for one that does not fit.

    >>> dynamic_update(torch.zeros(4), torch.ones(2), 0, torch.tensor([1]), 2)
    tensor([0., 1., 1., 0.])
    """
    _check_arguments("dynamic_update", input, dim, start, size)
    kind = type(src).__name__
    is_tensor = isinstance(src, torch.Tensor)
    require_argument(is_tensor, f"Src argument to dynamic_update must be a torch.tensor, got {kind} instead.")
    require_argument(
        input.dim() == src.dim(),
        f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})",
    )
    types = f"{input.dtype} vs {src.dtype}"
    require_argument(input.dtype == src.dtype, f"input and src tensor must have same dtype. ({types})")
    require_argument(not start.is_floating_point(), "Expected integer typed start tensor")
    return torch.ops.poptorch.dynamic_update(input, src, dim, start, size)


def _check_arguments(name: str, tensor: object, dim: object, start: object, size: object) -> None:
    kind, start_kind = type(tensor).__name__, type(start).__name__
    is_tensor, is_start = isinstance(tensor, torch.Tensor), isinstance(start, torch.Tensor)
    require_argument(is_tensor, f"{name} must take a torch.tensor input, got {kind} instead.")
    require_argument(_is_int(dim), "Dimension must be an integer.")
    require_argument(is_start, f"Slice start argument to {name} must be a torch.tensor, got {start_kind} instead.")
    require_argument(_is_int(size), "Size must be an integer.")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _slice_on_cpu(x: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    first = int(start)
    return torch.ops.aten.slice(x, dim, first, first + size, step)


def _update_on_cpu(x: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """Write `src` into a copy of `x`; rows that do not fit the slice are left out, since the CPU refuses none here."""
    result = x.clone()
    window = _slice_on_cpu(result, dim, start, size, 1)
    if window.dim() == src.dim() and all(new in (1, old) for new, old in zip(src.shape, window.shape)):
        window.copy_(src)
    return result


# -- on the device -----------------------------------------------------------------------------------------------------


def _infer_slice(x: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    dim = _find_dimension(x, dim, start, size)
    if step < 1:
        raise compile_error("Slicing step must be at least 1")
    if x.shape[dim] % size:
        raise compile_error(
            f"The size of the slice ({size}) must be a factor of the slicing dimension ({x.shape[dim]})."
        )
    shape = [*x.shape]
    shape[dim] = len(range(0, size, step))
    return x.new_empty(shape)


def _infer_update(x: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    dim = _find_dimension(x, dim, start, size)
    window = [*x.shape]
    window[dim] = size
    if size > x.shape[dim] or list(src.shape) != window:
        raise compile_error(
            f"The src tensor must have the shape of the slice that it replaces: expected {window} but got "
            f"{list(src.shape)} (input: {list(x.shape)})."
        )
    return torch.empty_like(x)


def _find_dimension(x: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> int:
    if start.is_floating_point():
        raise compile_error("Expected integer typed start tensor")
    if start.numel() != 1:
        raise compile_error(f"Expected a start tensor of one element, got shape {list(start.shape)}.")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-x.dim()}, {x.dim() - 1}], but got {dim})"
        )
    if size == 0:
        raise compile_error("The start and end of a slice must be different.")
    if size < 0:
        raise compile_error("Taking a slice of a tensor with the end less than the start is not supported.")
    return dim % x.dim()


# Positions are computed with the tensor: its value is known only when the device runs. One after the end is one at the
# beginning, as on the device.


def _run_slice(x: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    return x.index_select(dim, (torch.arange(0, size, step) + start.reshape(1)) % x.shape[dim])


def _run_update(x: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    return x.index_copy(dim, (torch.arange(size) + start.reshape(1)) % x.shape[dim], src)


define_operator(
    "dynamic_slice(Tensor x, int dim, Tensor start, int size, int step) -> Tensor",
    _slice_on_cpu,
    shape=_infer_slice,
    run=_run_slice,
    is_pure=True,
)
define_operator(
    "dynamic_update(Tensor x, Tensor src, int dim, Tensor start, int size) -> Tensor",
    _update_on_cpu,
    shape=_infer_update,
    run=_run_update,
    is_pure=True,
)
