"""Matrix products by the library that is the faster one for their shapes, as it was found out beforehand."""

from __future__ import annotations

from typing import Collection, Optional

import torch

from ..aot.matmul_kernels import Product

__all__ = ["Products", "describe_product"]


class Products:
    """Multiplies by oneDNN what is in `by_onednn`, and all else by ATen."""

    def __init__(self, by_onednn: Collection[Product] = ()) -> None:
        """Keep the choice."""
        self._by_onednn = frozenset(by_onednn)

    def multiply(self, left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return the product of two matrices, with `bias` added to each row."""
        if self._by_onednn and describe_product(left, right, bias) in self._by_onednn:
            result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                left.contiguous(), right.t(), bias, "none", [], ""
            )
            return result
        return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)


def describe_product(left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None) -> Product:
    """Return the shapes and strides of a product."""
    return Product(tuple(left.shape), left.stride(), tuple(right.shape), right.stride(), bias is not None)
