"""Floating-point exceptions: operators that make infinity or NaN of ordinary numbers, or compare with NaN, raise."""

from __future__ import annotations

import math
from typing import Any, Iterator, List

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["FloatingPointChecks"]

_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
_UNINITIALISED = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"])


class FloatingPointChecks(TorchDispatchMode):
    """Raises FloatingPointError at the first operator, forward or backward, that a device would stop at.

    These are invalid operations (a NaN that no operand had, a comparison with NaN) and overflow or division by zero
    (an infinity that no operand had). Numbers that are not finite because the program says so, such as a mask filled
    with minus infinity, are no exception.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and look at its result."""
        # Operands are looked at before the operator runs, which may overwrite them in place.
        name = func.overloadpacket.__name__
        leaves = tree_leaves((args, kwargs or {}))
        operands = list(_find_floats(leaves))
        has_nan = any(bool(operand.isnan().any()) for operand in operands)
        has_infinity = any(bool(operand.isinf().any()) for operand in operands)
        if has_nan and name in _COMPARISONS:
            raise FloatingPointError(f"invalid operation: aten::{name} compares with NaN")
        result = func(*args, **(kwargs or {}))
        # Memory that nobody has written yet holds anything. And a program that names infinity means it.
        names_infinity = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves)
        if operands and name not in _UNINITIALISED and not names_infinity:
            for value in _find_floats(tree_leaves(result)):
                if not has_nan and bool(value.isnan().any()):
                    raise FloatingPointError(f"invalid operation: the result of aten::{name} is NaN")
                if not has_infinity and bool(value.isinf().any()):
                    raise FloatingPointError(f"overflow or division by zero: the result of aten::{name} is infinite")
        return result


def _find_floats(leaves: List[Any]) -> Iterator[torch.Tensor]:
    return (leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() > 0)
