"""Count what eager code makes the machine do: floating-point operations, and bytes in and out of its operators."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import torch

from ...torch_insides.modes import TorchDispatchMode
from ...torch_insides.trees import tree_leaves
from .flop_counts import count_flops

__all__ = ["OperatorCounts", "count_operators"]


class OperatorCounts(NamedTuple):
    """Operations by torch's formulas, those of convolutions apart, bytes in and out of operators, and how many ran.

    Views read and write nothing, and are not counted.
    """

    matmul_flops: int
    convolution_flops: int
    operator_bytes: int
    num_operators: int


def count_operators(call: Callable[[], Any]) -> OperatorCounts:
    """Run `call` twice, backward pass and updates included, and count.

    >>> left, right = torch.ones(2, 3), torch.ones(3, 4)
    >>> count_operators(lambda: left @ right)
    OperatorCounts(matmul_flops=48, convolution_flops=0, operator_bytes=104, num_operators=1)
    """
    with _OperatorBytes() as operators:
        call()
    with warnings.catch_warnings(), count_flops() as counter:
        # torch's setting has an opinion on GPUs
        warnings.simplefilter("ignore")
        # recurrent layers are one operator of oneDNN, for which torch has no formula; without it they are products
        with torch.backends.mkldnn.flags(enabled=False):
            call()
    by_operator = counter.get_flop_counts().get("Global", {})
    convolution = sum(flops for operator, flops in by_operator.items() if "convolution" in str(operator))
    matmul = counter.get_total_flops() - convolution
    return OperatorCounts(matmul, convolution, operators.num_bytes, operators.num_operators)


class _OperatorBytes(TorchDispatchMode):
    """Adds up the bytes of all tensors that operators read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        self.num_operators = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run the operator and count its tensors."""
        results = func(*args, **(kwargs or {}))
        if not func.is_view:
            entering = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            leaving = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
            # what returns nothing writes to what it was given
            self.num_bytes += sum(map(_count_bytes, (*entering, *(leaving or entering))))
            self.num_operators += 1
        return results


def _count_bytes(tensor: torch.Tensor) -> int:
    # an expanded tensor has fewer than its shape says
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
