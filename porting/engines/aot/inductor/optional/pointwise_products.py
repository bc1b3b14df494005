"""Convolutions with a window of one pixel, as products of matrices.

With the channels of images innermost, such a convolution multiplies the matrix of all pixels [pixels, ins] by that of
the filters [ins, outs]. Torch does that image by image, by its BLAS, where one thread convolves a batch of fewer than
16; and with small images these products are small. All images at once are one product, for which the faster library is
then chosen as for any other.

What is here writes such products into a graph that is being compiled; nodes have values (`meta["val"]`). Images are
[count, channels, rows, columns] in channels-last order, filters [outs, ins, 1, 1].
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .....torch_insides.inductor import force_stride_order
from .....torch_insides.operators import LINEAR_BY_ONEDNN
from ....compiled.programs import call_operator

__all__ = ["make_products", "write_filter_gradient", "write_forward", "write_image_gradient"]

aten = torch.ops.aten


def write_forward(
    graph: torch.fx.Graph, images: torch.fx.Node, filters: torch.fx.Node, bias: Optional[torch.fx.Node]
) -> torch.fx.Node:
    """Write the convolution at the insertion point of `graph`; return the node of its result."""
    count, _channels, *size = images.meta["val"].shape
    transposed = call_operator(graph, aten.t.default, _make_filter_matrix(graph, filters))
    factors = _make_pixel_matrix(graph, images), transposed
    product = (
        call_operator(graph, aten.mm.default, *factors)
        if bias is None
        else call_operator(graph, aten.addmm.default, bias, *factors)
    )
    return _make_images(graph, product, count=count, size=size)


def write_image_gradient(graph: torch.fx.Graph, gradients: torch.fx.Node, filters: torch.fx.Node) -> torch.fx.Node:
    """Write the gradient of the images by that of the result."""
    count, _channels, *size = gradients.meta["val"].shape
    factors = _make_pixel_matrix(graph, gradients), _make_filter_matrix(graph, filters)
    return _make_images(graph, call_operator(graph, aten.mm.default, *factors), count=count, size=size)


def write_filter_gradient(graph: torch.fx.Graph, gradients: torch.fx.Node, images: torch.fx.Node) -> torch.fx.Node:
    """Write the gradient of the filters by that of the result."""
    transposed = call_operator(graph, aten.t.default, _make_pixel_matrix(graph, gradients))
    product = call_operator(graph, aten.mm.default, transposed, _make_pixel_matrix(graph, images))
    return call_operator(graph, aten.view.default, product, [*product.meta["val"].shape, 1, 1])


def make_products(kind: str, images: torch.Tensor, filters: torch.Tensor, bias: Any, gradients: torch.Tensor) -> Any:
    """Return two functions that compute what the nodes of a `kind` would, by either library, to be timed."""
    rows, of_result = (value.permute(0, 2, 3, 1).flatten(0, 2) for value in (images, gradients))
    weights = filters.flatten(1)
    left, right, added = {
        "forward": (rows, weights.t(), bias),
        "image gradient": (of_result, weights, None),
        "filter gradient": (of_result.t(), rows, None),
    }[kind]

    def multiply_by_blas() -> torch.Tensor:
        return torch.mm(left, right) if added is None else torch.addmm(added, left, right)

    def multiply_by_onednn() -> torch.Tensor:
        found: torch.Tensor = LINEAR_BY_ONEDNN(left.contiguous(), right.t(), added, "none", [], "")
        return found

    return multiply_by_blas, multiply_by_onednn


def _make_pixel_matrix(graph: torch.fx.Graph, images: torch.fx.Node) -> torch.fx.Node:
    value = images.meta["val"]
    # Inductor lays results out as it likes; where it has no reason for another order, this makes it take that one.
    ordered = call_operator(graph, force_stride_order, images, list(value.stride()))
    last = call_operator(graph, aten.permute.default, ordered, [0, 2, 3, 1])
    return call_operator(graph, aten.view.default, last, [-1, value.shape[1]])


def _make_filter_matrix(graph: torch.fx.Graph, filters: torch.fx.Node) -> torch.fx.Node:
    return call_operator(graph, aten.view.default, filters, list(filters.meta["val"].shape[:2]))


def _make_images(graph: torch.fx.Graph, matrix: torch.fx.Node, *, count: int, size: Any) -> torch.fx.Node:
    rows = call_operator(graph, aten.view.default, matrix, [count, *size, matrix.meta["val"].shape[1]])
    return call_operator(graph, aten.permute.default, rows, [0, 3, 1, 2])
