"""Compute the shapes that convolutions, normalizations, pools, attention and products give.

B = samples, T = time, C = channels, F = features, S = spatial dimensions.
"""

# ruff: noqa: N803 - names of tensors end in their shapes
from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from .plain_shapes import (
    are_floats,
    are_plain,
    combine,
    expect,
    fits,
    is_contiguous,
    is_in_order,
    is_turned,
    new_tensor,
)

__all__ = ["LAYERS"]

aten = torch.ops.aten

Sizes = Union[int, Sequence[int]]
"""One number for all dimensions, or one for each."""

_INTEGERS = frozenset([torch.int64, torch.int32])
_HALVES = frozenset([torch.bfloat16, torch.float16])


def _have_shape(shape: Tuple[int, ...], *tensors: Optional[Tensor]) -> bool:
    return all(tensor is None or tuple(tensor.shape) == shape for tensor in tensors)


def _infer_linear(x_BF: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    # the kernel copies a matrix that has gaps; with more dimensions it makes views, whose strides torch works out
    layout = is_in_order if x_BF.dim() == 2 else is_contiguous
    if x_BF.dim() == 3 and is_turned(x_BF):
        layout = is_turned  # a copy is multiplied
    expect(are_plain(x_BF, layout=layout) and are_plain(weight, bias) and weight.dtype == x_BF.dtype)
    expect(weight.dim() == 2 and x_BF.dim() >= 1 and x_BF.shape[-1] == weight.shape[1])
    expect(_have_shape((weight.shape[0],), bias))
    return new_tensor((*x_BF.shape[:-1], weight.shape[0]), x_BF)


def _infer_embedding(weight: Tensor, indices: Tensor, *_others: object) -> Tensor:
    expect(weight.dim() == 2 and is_contiguous(weight) and indices.dtype in _INTEGERS and is_contiguous(indices))
    return new_tensor((*indices.shape, weight.shape[1]), weight)


def _infer_batch_norm(x_BCS: Tensor, *settings: Any) -> Tensor:
    weight, bias, mean, var, training = settings[:5]
    per_channel = [tensor for tensor in (weight, bias, mean, var) if tensor is not None]
    # images in half precision may have statistics and weights in float32
    is_mixed = x_BCS.dtype in _HALVES and bool(per_channel) and per_channel[0].dtype == torch.float32
    expect(are_plain(x_BCS) and are_plain(*per_channel) if is_mixed else are_plain(x_BCS, *per_channel))
    expect(x_BCS.dim() >= 2 and (training or (mean is not None and var is not None)))
    channels = x_BCS.shape[1]
    # torch refuses to normalise one value per channel, and says so better
    expect(not (training and x_BCS.numel() == channels) and _have_shape((channels,), *per_channel))
    return new_tensor(x_BCS.shape, x_BCS)


def _infer_layer_norm(
    tensor: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *_numbers: object,
) -> Tensor:
    shape = tuple(normalized_shape)
    expect(bool(shape) and are_floats(tensor) and tuple(tensor.shape[-len(shape) :]) == shape)
    expect(are_plain(weight, bias) if (weight, bias) != (None, None) else True)
    expect(_have_shape(shape, weight, bias))
    # one that lies in another order is copied first
    return new_tensor(tensor.shape, tensor)


def _infer_group_norm(
    x_BCS: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, *_numbers: object
) -> Tensor:
    expect(x_BCS.dim() >= 2 and are_plain(x_BCS, weight, bias) and num_groups >= 1)
    expect(x_BCS.shape[1] % num_groups == 0 and _have_shape((x_BCS.shape[1],), weight, bias))
    return new_tensor(x_BCS.shape, x_BCS)


def _spread_number(value: Sizes, count: int) -> List[int]:
    """Return one number for each of `count` dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _infer_convolution(
    num_dims: int,
    x_BCS: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    settings = [_spread_number(value, num_dims) for value in (stride, padding, dilation)]
    expect(x_BCS.dim() == weight.dim() == num_dims + 2 and are_plain(x_BCS, weight, bias) and groups >= 1)
    outputs, inputs = weight.shape[:2]
    expect(x_BCS.shape[1] == inputs * groups and outputs % groups == 0 and _have_shape((outputs,), bias))
    return new_tensor((x_BCS.shape[0], outputs, *_count_windows(x_BCS, weight.shape[2:], *settings)), x_BCS)


def _infer_transposed_convolution(
    num_dims: int,
    x_BCS: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    settings = [_spread_number(value, num_dims) for value in (stride, padding, output_padding, dilation)]
    expect(x_BCS.dim() == weight.dim() == num_dims + 2 and are_plain(x_BCS, weight, bias) and groups >= 1)
    expect(x_BCS.shape[1] == weight.shape[0] and weight.shape[0] % groups == 0)
    outputs = weight.shape[1] * groups
    expect(_have_shape((outputs,), bias) and all(len(values) == num_dims for values in settings))
    sizes = []
    for size, kernel, step, pad, extra, gap in zip(x_BCS.shape[2:], weight.shape[2:], *settings):
        expect(min(step, gap) >= 1 and pad >= 0 and 0 <= extra < max(step, gap))
        sizes.append((size - 1) * step - 2 * pad + gap * (kernel - 1) + extra + 1)
    expect(min(sizes) >= 1)
    return new_tensor((x_BCS.shape[0], outputs, *sizes), x_BCS)


def _infer_pool(
    num_dims: int,
    x_BCS: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil: bool = False,
) -> Tensor:
    kernels, strides, paddings, gaps = (
        _spread_number(value, num_dims) for value in (kernel, stride, padding, dilation)
    )
    expect(x_BCS.dim() == num_dims + 2 and are_plain(x_BCS))
    expect(all(2 * pad <= size for size, pad in zip(kernels, paddings)))
    windows = _count_windows(x_BCS, kernels, strides or kernels, paddings, gaps, ceil=ceil)
    return new_tensor((*x_BCS.shape[:2], *windows), x_BCS)


def _count_windows(x_BCS: Tensor, kernels: Sequence[int], *settings: Sequence[int], ceil: bool = False) -> List[int]:
    """Count the positions of a window along each dimension; the settings are strides, paddings and dilations."""
    counts = []
    expect(all(len(values) == x_BCS.dim() - 2 for values in (kernels, *settings)))
    for size, kernel, step, pad, gap in zip(x_BCS.shape[2:], kernels, *settings):
        expect(min(kernel, step, gap) >= 1 and pad >= 0)
        room = size + 2 * pad - gap * (kernel - 1) - 1
        expect(room >= 0)
        count = (-(-room // step) if ceil else room // step) + 1
        # the last window must begin inside of the tensor or its left padding
        counts.append(count - 1 if ceil and (count - 1) * step >= size + pad else count)
    expect(min(counts) >= 1)
    return counts


def _infer_average_pool(
    x_BCS: Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, ceil: bool = False, *divisors: Any
) -> Tensor:
    # whether padding counts changes no shape, and a divisor of the user's own may be 0, which torch refuses
    expect(all(divisor is None for divisor in divisors[1:]))
    return _infer_pool(2, x_BCS, kernel, stride, padding, 1, ceil)


def _infer_adaptive_average_pool(x_BCS: Tensor, output_size: Sequence[int]) -> Tensor:
    expect(x_BCS.dim() == 4 and len(output_size) == 2 and min(output_size) >= 1 and are_plain(x_BCS))
    return new_tensor((*x_BCS.shape[:2], *output_size), x_BCS)


def _infer_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None, p: float = 0.0, causal: bool = False
) -> Tensor:
    """Attend from each query to all keys; (samples, heads, length, features) are often views of another order."""
    expect(0 <= p < 1 and query.dtype.is_floating_point)
    if mask is not None:
        scores = (*query.shape[:2], query.shape[2], query.shape[2])
        expect(query.dim() == 4 and mask.dtype in (query.dtype, torch.bool) and is_contiguous(mask))
        expect(fits(mask.shape, scores) and not causal)
    for tensor in (query, key, value):
        expect(tensor.dim() == 4 and tensor.dtype == query.dtype and tensor.shape == query.shape)
        expect(0 not in tensor.shape and tensor.stride(-1) == 1)
    # with a dropout a new product is returned; otherwise torch's kernels for the CPU lay it out as the query is
    if p > 0.0:
        return new_tensor(query.shape, query)
    if is_contiguous(query):
        return torch.empty_strided(query.shape, query.stride(), dtype=query.dtype, device="meta")
    return combine(query, query)


def _infer_lstm(
    x_TBF: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], *settings: Any
) -> Tuple[Tensor, ...]:
    has_biases, num_layers, p, _train, is_bidirectional, batch_first = settings
    num_cells = num_layers * (2 if is_bidirectional else 1)
    expect(x_TBF.dim() == 3 and are_plain(x_TBF, *states, *weights) and len(states) == 2 and 0 <= p <= 1)
    samples, length = x_TBF.shape[:2] if batch_first else (x_TBF.shape[1], x_TBF.shape[0])
    # other counts mean that the outputs are projected
    expect(states[0].dim() == 3 and len(weights) == num_cells * (4 if has_biases else 2))
    size = states[0].shape[2]
    state_shape = (num_cells, samples, size)
    # each weight of the first layer has the rows of four gates
    expect(_have_shape(state_shape, *states) and _have_shape((4 * size, x_TBF.shape[2]), weights[0]))
    expect(_have_shape((4 * size, size), weights[1]))
    output = new_tensor((length, samples, num_cells // num_layers * size), x_TBF)
    return (output.transpose(0, 1) if batch_first else output, *(new_tensor(state_shape, x_TBF) for _ in states))


def _infer_upsample(num_settings: int, x_BCS: Tensor, output_size: Optional[Sequence[int]], *settings: Any) -> Tensor:
    """Interpolate images; there are `num_settings` arguments between output size and scales."""
    scales: Any = settings[num_settings] if len(settings) > num_settings else None
    expect(x_BCS.dim() == 4 and are_plain(x_BCS) and (output_size is None) != (scales is None))
    sizes = output_size or [math.floor(size * scale) for size, scale in zip(x_BCS.shape[2:], scales)]
    expect(len(sizes) == 2 and min(sizes) >= 1)
    return new_tensor((*x_BCS.shape[:2], *sizes), x_BCS)


LAYERS: Dict[Any, Callable[..., Any]] = {
    aten.adaptive_avg_pool2d.default: _infer_adaptive_average_pool,
    aten.avg_pool2d.default: _infer_average_pool,
    aten.batch_norm.default: _infer_batch_norm,
    aten.conv1d.default: partial(_infer_convolution, 1),
    aten.conv2d.default: partial(_infer_convolution, 2),
    aten.conv3d.default: partial(_infer_convolution, 3),
    aten.conv_transpose1d.default: partial(_infer_transposed_convolution, 1),
    aten.conv_transpose2d.input: partial(_infer_transposed_convolution, 2),
    aten.conv_transpose3d.input: partial(_infer_transposed_convolution, 3),
    aten.embedding.default: _infer_embedding,
    aten.group_norm.default: _infer_group_norm,
    aten.layer_norm.default: _infer_layer_norm,
    aten.linear.default: _infer_linear,
    aten.lstm.input: _infer_lstm,
    aten.max_pool1d.default: partial(_infer_pool, 1),
    aten.max_pool2d.default: partial(_infer_pool, 2),
    aten.scaled_dot_product_attention.default: _infer_attention,
    aten.upsample_bilinear2d.vec: partial(_infer_upsample, 1),
    aten.upsample_nearest2d.vec: partial(_infer_upsample, 0),
}
