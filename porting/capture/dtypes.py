"""Element types of the device, and the casts that an ATen operator needs because of them.

The device computes in float32, float16, int32, int16, int8, uint8 and bool. 64-bit types are narrowed when they enter
or arise; operators of the CPU that insist on 64-bit indices get them back just for the call. Half and single precision
may meet in one operator: layers follow their activation, products follow the operand that is not a parameter, writes
follow what is written to.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

import torch

from porting.torch_insides.operators import OpOverload

__all__ = [
    "NARROWED",
    "device_dtype",
    "float_cast_targets",
    "index_arguments",
    "is_device_dtype",
    "mask_arguments",
    "rounded_result",
]

NARROWED: Dict[torch.dtype, torch.dtype] = {
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.bfloat16: torch.float32,
}

_NATIVE: FrozenSet[torch.dtype] = frozenset(
    [torch.float32, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
)

_MIXED_FLOATS = frozenset([torch.float16, torch.bfloat16, torch.float32])

# Operators whose first argument is the activation, or what is written to; the others are cast to its type.
_FOLLOW_FIRST = frozenset(
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution bilinear "
    "layer_norm group_norm rms_norm instance_norm prelu lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
    "rnn_relu_cell cross_entropy_loss nll_loss nll_loss2d nll_loss_nd index_put index_put_ index_copy index_copy_ "
    "index_add index_add_ index_reduce index_reduce_ put put_ scatter scatter_ scatter_add scatter_add_ scatter_reduce "
    "scatter_reduce_ masked_scatter masked_scatter_ embedding_bag".split()
)

# Operators that multiply matrices; the operands that are not parameters say which type is used.
_PRODUCTS = frozenset(
    "matmul mm bmm addmm addbmm baddbmm addmv mv dot vdot inner outer ger addr einsum tensordot chain_matmul "
    "scaled_dot_product_attention".split()
)

# Operators whose CPU kernels want one type, which their shape rules do not say.
_PROMOTED = frozenset(
    "cross linalg_cross grid_sampler grid_sampler_2d grid_sampler_3d heaviside binary_cross_entropy".split()
)

# Operators without a CPU kernel for half precision: computed in single precision and rounded.
_SINGLE_ONLY = frozenset("avg_pool3d cdist ctc_loss multi_margin_loss multilabel_margin_loss pdist rrelu".split())

# Integer arguments that the CPU operators demand as int64, by operator.
_INDEX_ARGUMENTS: Dict[str, Tuple[str, ...]] = {
    operator: (argument,)
    for argument, operators in {
        "target": "cross_entropy_loss nll_loss nll_loss2d nll_loss_nd multi_margin_loss multilabel_margin_loss "
        "multilabel_margin_loss_forward nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward",
        "index": "gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_copy "
        "index_copy_ index_fill index_fill_ index_reduce index_reduce_ take put put_",
        "indices": "take_along_dim max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward max_unpool1d max_unpool2d max_unpool3d",
        "self": "one_hot",
        "tensor_indices_or_sections": "tensor_split",
    }.items()
    for operator in operators.split()
}

# Arguments that are masks, which on the device may be bytes too.
_MASK_ARGUMENTS: Dict[str, Tuple[str, ...]] = {
    **dict.fromkeys("masked_fill masked_fill_ masked_scatter masked_scatter_".split(), ("mask",)),
    **dict.fromkeys("index index_put index_put_ _index_put_impl_".split(), ("indices",)),
    "where": ("condition",),
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


def index_arguments(operator: OpOverload) -> Tuple[str, ...]:
    """Return the names of `operator`'s arguments that the CPU demands as int64."""
    return _INDEX_ARGUMENTS.get(operator.overloadpacket.__name__, ())


def mask_arguments(operator: OpOverload) -> Tuple[str, ...]:
    """Return the names of `operator`'s arguments that are masks if they are bytes."""
    return _MASK_ARGUMENTS.get(operator.overloadpacket.__name__, ())


def float_cast_targets(
    operator: OpOverload, tensors: Sequence[torch.Tensor], are_parameters: Sequence[bool]
) -> List[torch.dtype]:
    """Return the types that the tensor arguments of `operator` are cast to; integers, and most others, keep theirs.

    `tensors` are the arguments in order and `are_parameters` tells which of them are made of parameters alone.
    """
    name = operator.overloadpacket.__name__
    own = [tensor.dtype for tensor in tensors]
    floats = {dtype for dtype in own if dtype in _MIXED_FLOATS}
    if len(floats) < 2 and not (name in _SINGLE_ONLY and floats != {torch.float32}):
        return own
    if name == "batch_norm":
        # half activations go with statistics and weights of single precision, never the other way round
        return own[:1] + [torch.float32] * (len(own) - 1)
    target = torch.float32
    if name in _FOLLOW_FIRST:
        target = own[0]
    elif name in _PRODUCTS:
        # a parameter follows what it is multiplied with; activations of two types meet in the wider one
        activations = floats.intersection(dtype for dtype, is_weight in zip(own, are_parameters) if not is_weight)
        target = activations.pop() if len(activations) == 1 else torch.float32
    elif name not in _PROMOTED and name not in _SINGLE_ONLY:
        return own
    return [target if dtype in _MIXED_FLOATS else dtype for dtype in own]


def rounded_result(operator: OpOverload, tensors: Sequence[torch.Tensor]) -> Optional[torch.dtype]:
    """Return the type that the results of `operator` on the uncast `tensors` are rounded to; None leaves them."""
    # with a wider operand the result is wide by itself
    is_half = {tensor.dtype for tensor in tensors if tensor.dtype in _MIXED_FLOATS} == {torch.float16}
    return torch.float16 if is_half and operator.overloadpacket.__name__ in _SINGLE_ONLY else None
