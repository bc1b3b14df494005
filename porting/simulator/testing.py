"""Compare a model's outputs with expected ones, nested as `forward` returned them."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["allclose"]


def allclose(ref: Any, other: Any) -> bool:
    """Tell whether `other` has the structure of `ref` and tensors that `torch.allclose` calls equal.

    Tuples and lists must be of the same type and length. Other values are taken for containers of such, as PopTorch
    does: one that cannot be iterated raises `TypeError`.

    >>> allclose((torch.ones(2), [torch.zeros(1)]), (torch.ones(2), [torch.zeros(1)]))
    True
    >>> allclose([torch.ones(2)], (torch.ones(2),))
    False
    """
    if isinstance(ref, torch.Tensor):
        return torch.allclose(other, ref)
    if isinstance(ref, str):
        # iterating a string gives strings, without an end
        return ref == other
    if isinstance(ref, (tuple, list)) and (type(ref) is not type(other) or len(ref) != len(other)):
        return False
    return all(allclose(expected, actual) for expected, actual in zip(ref, other))
