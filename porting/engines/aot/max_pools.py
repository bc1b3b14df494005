"""Maximum pools by torch's kernels, where those are faster than the loops that Inductor writes.

Inductor's loops over all windows use no vectors where channels lie innermost: a pool of 3 x 3 took 0.79 ms where
torch's kernel took 0.22. With rows innermost it depends on the window, and Inductor's loop stays. The gradient is
torch's in either order.

This changes tables of Inductor in the process that compiles, which does nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import decomposition, ir, lowering
from torch._inductor.virtualized import V

__all__ = ["use_torch_for_max_pools"]

aten = torch.ops.aten


def use_torch_for_max_pools() -> None:
    """Let programs that are compiled from now on call torch's kernels."""
    pool, gradient = aten.max_pool2d_with_indices, aten.max_pool2d_with_indices_backward
    # The decomposition is asked first, and the lowering by packet and by overload.
    for packet in (pool, gradient):
        decomposition.decompositions.pop(packet.default, None)
    _set_lowering(gradient, _compute_gradient)
    written_out, by_torch = lowering.lowerings[pool.default], lowering.fallback_handler(pool.default, False)

    def lower(images: Any, *args: Any, **kwargs: Any) -> Any:
        node: Any = V.graph.current_node.args[0]
        value = node.meta["val"]
        if value.is_contiguous() or not value.is_contiguous(memory_format=torch.channels_last):
            return written_out(images, *args, **kwargs)
        order = ir.get_stride_order(value.stride())
        return by_torch(ir.ExternKernel.require_stride_order(images, order), *args, **kwargs)

    _set_lowering(pool, lower)


def _compute_gradient(gradient: Any, images: Any, *settings: Any) -> Any:
    """Call torch's kernel with a gradient that lies as the images do."""
    # The kernel goes by the layout of the gradient alone: into that it would copy the indices and its result, which has
    # the size of the images, and its result back again.
    node: Any = V.graph.current_node.args[1]
    value = node.meta["val"]
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        gradient = ir.ExternKernel.require_channels_last(gradient)
    return lowering.fallback_max_pool2d_with_indices_backward(gradient, images, *settings)


def _set_lowering(packet: Any, lower: Any) -> None:
    lowering.lowerings[packet] = lowering.lowerings[packet.default] = lower
