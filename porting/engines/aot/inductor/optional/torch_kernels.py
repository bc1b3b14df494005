"""Maximum pools and enlarged images by torch's kernels, where those are faster than the loops that Inductor writes.

Inductor's loops use no vectors for these where channels lie innermost: a pool of 3 x 3 took 0.79 ms where torch's
kernel took 0.22, and 16 channels enlarged to 160 x 256 pixels 0.93 ms, torch's 0.23. With rows innermost it depends on
the shape, and Inductor's loop stays. The gradients are torch's in either order.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator

import torch

from .....torch_insides.inductor import (
    AUTOGRAD,
    CHANNELS_LAST,
    below_autograd,
    call_torchs_kernel,
    clear_dispatch,
    compute_pool_gradient,
    decompositions,
    get_stride_order,
    pool_lowerings,
    require_channels_last,
    require_stride_order,
    virtualized,
)

__all__ = ["torch_kernels"]

aten = torch.ops.aten
_GONE: Any = object()


@contextmanager
def torch_kernels() -> Iterator[None]:
    """Let programs that are compiled while the context lasts call them; MissingPart for a torch without the tables."""
    CHANNELS_LAST.require()
    pool, gradient = aten.max_pool2d_with_indices, aten.max_pool2d_with_indices_backward
    with ExitStack() as stack:
        # The decomposition is asked first, and the lowering by packet and by overload.
        for packet in (pool, gradient):
            _set_entry(stack, decompositions, packet.default, _GONE)
        _set_lowering(stack, gradient, _compute_gradient)
        written_out, by_torch = pool_lowerings[pool.default], call_torchs_kernel(pool.default, False)

        def lower(images: object, *args: Any, **kwargs: Any) -> Any:
            node: Any = virtualized.V.graph.current_node.args[0]
            if not _has_channels_innermost(node.meta["val"]):
                return written_out(images, *args, **kwargs)
            return by_torch(_lay_out(images, node), *args, **kwargs)

        _set_lowering(stack, pool, lower)
        _enlarge_by_torch(stack, aten.upsample_bilinear2d.default)
        yield


def _enlarge_by_torch(stack: ExitStack, operator: Any) -> None:
    # It has a decomposition of its own, which autograd's part of the dispatcher runs before any table is asked.
    written_out, by_torch = operator.py_kernels.get(AUTOGRAD), call_torchs_kernel(operator, False)
    if written_out is None:
        return

    def decompose(images: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _has_channels_innermost(images):
            return written_out(images, *args, **kwargs)
        with below_autograd():
            return operator(images, *args, **kwargs)

    def lower(images: object, *args: Any, **kwargs: Any) -> Any:
        return by_torch(_lay_out(images, virtualized.V.graph.current_node.args[0]), *args, **kwargs)

    stack.callback(clear_dispatch)
    _set_entry(stack, operator.py_kernels, AUTOGRAD, decompose)
    clear_dispatch()
    _set_lowering(stack, operator.overloadpacket, lower)


def _has_channels_innermost(value: torch.Tensor) -> bool:
    return not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)


def _lay_out(images: Any, node: Any) -> Any:
    return require_stride_order(images, get_stride_order(node.meta["val"].stride()))


def _compute_gradient(gradient: object, images: object, *settings: Any) -> Any:
    """Call torch's kernel with a gradient that lies as the images do."""
    # The kernel goes by the layout of the gradient alone: into that it would copy the indices and its result, which has
    # the size of the images, and its result back again.
    node: Any = virtualized.V.graph.current_node.args[1]
    value = node.meta["val"]
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        gradient = require_channels_last(gradient)
    return compute_pool_gradient(gradient, images, *settings)


def _set_lowering(stack: ExitStack, packet: Any, lower: Any) -> None:
    for operator in (packet, packet.default):
        _set_entry(stack, pool_lowerings, operator, lower)


def _set_entry(stack: ExitStack, table: Dict[Any, Any], key: object, value: object) -> None:
    """Give `key` a value in one of torch's tables, or none at all, until `stack` ends."""
    before = table.pop(key, _GONE)
    if value is not _GONE:
        table[key] = value
    stack.callback(table.pop, key, None) if before is _GONE else stack.callback(table.__setitem__, key, before)
