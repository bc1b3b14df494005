"""Which element types the device has, and the casts that an ATen operator needs because of them.

The device computes in float32, float16, int32, int16, int8, uint8 and bool. 64-bit types are narrowed when they enter
or arise; operators of the CPU that insist on 64-bit indices get them back just for the call. Half and single precision
may meet in one operator: layers follow their activation, products follow the operand that is not a parameter.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Optional, Sequence, Tuple

import torch

__all__ = ["NARROWED", "device_dtype", "float_cast_targets", "index_arguments", "is_device_dtype"]

NARROWED: Dict[torch.dtype, torch.dtype] = {
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.bfloat16: torch.float32,
}

_NATIVE: FrozenSet[torch.dtype] = frozenset(
    [torch.float32, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
)

_MIXED_FLOATS = frozenset([torch.float16, torch.float32])

# Operators whose first argument is the activation; their other floating arguments are cast to its type.
_LAYERS = frozenset(
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution bilinear "
    "layer_norm group_norm rms_norm prelu lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "batch_norm instance_norm".split()
)

# Operators that multiply matrices; the operands that are not parameters say which type is used.
_PRODUCTS = frozenset(
    "matmul mm bmm addmm addbmm baddbmm addmv mv dot vdot inner outer ger addr einsum tensordot chain_matmul "
    "scaled_dot_product_attention".split()
)

# Integer arguments that the CPU operators demand as int64.
_INDEX_ARGUMENTS: Dict[str, Tuple[str, ...]] = {
    "cross_entropy_loss": ("target",),
    "nll_loss": ("target",),
    "nll_loss2d": ("target",),
    "nll_loss_nd": ("target",),
    "multi_margin_loss": ("target",),
    "multilabel_margin_loss": ("target",),
    "one_hot": ("self",),
    "gather": ("index",),
    "scatter": ("index",),
    "scatter_": ("index",),
    "scatter_add": ("index",),
    "scatter_add_": ("index",),
    "scatter_reduce": ("index",),
    "scatter_reduce_": ("index",),
    "index_copy": ("index",),
    "index_copy_": ("index",),
    "index_fill": ("index",),
    "index_fill_": ("index",),
    "index_reduce": ("index",),
    "index_reduce_": ("index",),
    "take": ("index",),
    "put": ("index",),
    "put_": ("index",),
    "take_along_dim": ("indices",),
    "max_unpool1d": ("indices",),
    "max_unpool2d": ("indices",),
    "max_unpool3d": ("indices",),
}


def device_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type that a tensor of type `dtype` has on the device.

    >>> device_dtype(torch.int64), device_dtype(torch.float16)
    (torch.int32, torch.float16)
    """
    return NARROWED.get(dtype, dtype)


def is_device_dtype(dtype: torch.dtype) -> bool:
    """Tell whether the device can hold `dtype` after narrowing; complex and quantised types it cannot."""
    return device_dtype(dtype) in _NATIVE


def index_arguments(operator: Any) -> Tuple[str, ...]:
    """Return the names of `operator`'s arguments that the CPU demands as int64."""
    return _INDEX_ARGUMENTS.get(operator.overloadpacket.__name__, ())


def float_cast_targets(
    operator: Any, tensors: Sequence[torch.Tensor], are_parameters: Sequence[bool]
) -> Optional[torch.dtype]:
    """Return the type that the floating arguments of `operator` are cast to, or None when nothing needs a cast.

    `tensors` are the tensor arguments in order and `are_parameters` tells which of them are made of parameters alone.
    """
    floats = [(t.dtype, p) for t, p in zip(tensors, are_parameters) if t.dtype in _MIXED_FLOATS]
    if len({dtype for dtype, _ in floats}) < 2:
        return None
    name = operator.overloadpacket.__name__
    if name in _LAYERS:
        return tensors[0].dtype
    if name in _PRODUCTS:
        activations = {dtype for dtype, is_parameter in floats if not is_parameter}
        return activations.pop() if len(activations) == 1 else torch.float32
    return None
