"""Shape rules of operators that make a tensor from nothing: zeros, ones, random numbers, ranges."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence

import torch
from torch import Tensor

from .plain_shapes import expect, is_contiguous, new_tensor

__all__ = ["FACTORIES"]

aten = torch.ops.aten


def _infer_filled(shape: Sequence[int], *, dtype: Optional[torch.dtype] = None) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype or torch.get_default_dtype(), device="meta")


def _infer_filled_of_type(tensor: Tensor, shape: Sequence[int], *, dtype: Optional[torch.dtype] = None) -> Tensor:
    return _infer_filled(shape, dtype=dtype or tensor.dtype)


def _infer_like(tensor: Tensor, *, dtype: Optional[torch.dtype] = None) -> Tensor:
    expect(is_contiguous(tensor))
    return new_tensor(tensor.shape, tensor, dtype)


def _infer_full_like(tensor: Tensor, _value: object, *, dtype: Optional[torch.dtype] = None) -> Tensor:
    return _infer_like(tensor, dtype=dtype)


def _infer_full(shape: Sequence[int], value: float, *, dtype: Optional[torch.dtype] = None) -> Tensor:
    kinds = {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}
    expect(dtype is not None or type(value) in kinds)
    return _infer_filled(shape, dtype=dtype or kinds[type(value)])


def _infer_counted(start: int, end: int, step: int = 1, *, dtype: Optional[torch.dtype] = None) -> Tensor:
    # numbers may be fractions all the same, and how often one fits is a question of rounding
    expect(all(type(number) is int for number in (start, end, step)) and step != 0)
    return _infer_filled([len(range(start, end, step))], dtype=dtype or torch.int64)


FACTORIES: Dict[Any, Callable[..., Any]] = {
    aten.arange.default: partial(_infer_counted, 0),
    aten.arange.start: _infer_counted,
    aten.arange.start_step: _infer_counted,
    aten.full.default: _infer_full,
    aten.full_like.default: _infer_full_like,
    aten.new_empty.default: _infer_filled_of_type,
    aten.new_ones.default: _infer_filled_of_type,
    aten.new_zeros.default: _infer_filled_of_type,
    aten.ones.default: _infer_filled,
    aten.ones_like.default: _infer_like,
    aten.rand.default: _infer_filled,
    aten.rand_like.default: _infer_like,
    aten.randn.default: _infer_filled,
    aten.randn_like.default: _infer_like,
    aten.zeros.default: _infer_filled,
    aten.zeros_like.default: _infer_like,
}
