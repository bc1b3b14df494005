"""Shape rules of layers: convolutions, normalizations, pools, attention and products.

B = samples, C = channels, F = features, S = spatial dimensions.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .plain_shapes import UNKNOWN, are_plain, is_contiguous, is_in_order, new_tensor

__all__ = ["LAYERS"]

aten = torch.ops.aten

_INTEGERS = frozenset([torch.int64, torch.int32])
_HALVES = frozenset([torch.bfloat16, torch.float16])


def _linear(x_BF: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> Any:  # noqa: N803
    # a matrix may lie in memory as it likes
    layout = is_in_order if x_BF.dim() == 2 else is_contiguous
    if not are_plain(x_BF, layout=layout) or not are_plain(weight, bias) or weight.dtype != x_BF.dtype:
        return UNKNOWN
    if weight.dim() != 2 or x_BF.dim() < 1 or x_BF.shape[-1] != weight.shape[1]:
        return UNKNOWN
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        return UNKNOWN
    return new_tensor((*x_BF.shape[:-1], weight.shape[0]), x_BF)


def _embedding(weight: torch.Tensor, indices: torch.Tensor, *_others: Any) -> Any:
    if weight.dim() != 2 or not is_contiguous(weight) or indices.dtype not in _INTEGERS or not is_contiguous(indices):
        return UNKNOWN
    return new_tensor((*indices.shape, weight.shape[1]), weight)


def _batch_norm(
    x_BCS: torch.Tensor,  # noqa: N803
    weight: Optional[torch.Tensor],
    bias: Optional[torch.Tensor],
    mean: Optional[torch.Tensor],
    var: Optional[torch.Tensor],
    training: bool,
    *_numbers: Any,
) -> Any:
    per_channel = [tensor for tensor in (weight, bias, mean, var) if tensor is not None]
    # images in half precision may have statistics and weights in float32
    is_mixed = x_BCS.dtype in _HALVES and bool(per_channel) and per_channel[0].dtype == torch.float32
    is_known = are_plain(x_BCS) and are_plain(*per_channel) if is_mixed else are_plain(x_BCS, *per_channel)
    if x_BCS.dim() < 2 or not is_known or (mean is None or var is None) and not training:
        return UNKNOWN
    channels = x_BCS.shape[1]
    # torch refuses to normalise one value per channel, and says so better
    is_alone = training and x_BCS.numel() == channels
    if is_alone or any(tuple(tensor.shape) != (channels,) for tensor in per_channel):
        return UNKNOWN
    return new_tensor(x_BCS.shape, x_BCS)


def _layer_norm(
    tensor: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: Optional[torch.Tensor] = None,
    bias: Optional[torch.Tensor] = None,
    *_numbers: Any,
) -> Any:
    shape = tuple(normalized_shape)
    affine = [value for value in (weight, bias) if value is not None]
    if not shape or not are_plain(tensor, *affine) or tuple(tensor.shape[-len(shape) :]) != shape:
        return UNKNOWN
    return UNKNOWN if any(tuple(value.shape) != shape for value in affine) else new_tensor(tensor.shape, tensor)


def _group_norm(
    x_BCS: torch.Tensor,  # noqa: N803
    num_groups: int,
    weight: Optional[torch.Tensor] = None,
    bias: Optional[torch.Tensor] = None,
    *_numbers: Any,
) -> Any:
    affine = [value for value in (weight, bias) if value is not None]
    if x_BCS.dim() < 2 or not are_plain(x_BCS, *affine) or num_groups < 1 or x_BCS.shape[1] % num_groups:
        return UNKNOWN
    has_wrong_shape = any(tuple(value.shape) != (x_BCS.shape[1],) for value in affine)
    return UNKNOWN if has_wrong_shape else new_tensor(x_BCS.shape, x_BCS)


def _spread(value: Any, count: int) -> List[int]:
    """Return one number for each of `count` dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _convolution(num_dimensions: int) -> Callable[..., Any]:
    def convolution(
        x_BCS: torch.Tensor,  # noqa: N803
        weight: torch.Tensor,
        bias: Optional[torch.Tensor] = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        settings = [_spread(value, num_dimensions) for value in (stride, padding, dilation)]
        dims = num_dimensions + 2
        if x_BCS.dim() != dims or weight.dim() != dims or not are_plain(x_BCS, weight, bias) or groups < 1:
            return UNKNOWN
        outputs, inputs = weight.shape[:2]
        if x_BCS.shape[1] != inputs * groups or outputs % groups or any(len(s) != num_dimensions for s in settings):
            return UNKNOWN
        if bias is not None and tuple(bias.shape) != (outputs,):
            return UNKNOWN
        sizes = zip(x_BCS.shape[2:], weight.shape[2:], *settings)
        spatial = [_windows(size, kernel, step, pad, gap) for size, kernel, step, pad, gap in sizes]
        return UNKNOWN if min(spatial) < 1 else new_tensor((x_BCS.shape[0], outputs, *spatial), x_BCS)

    return convolution


def _windows(size: int, kernel: int, step: int, pad: int, gap: int = 1, *, ceil: bool = False) -> int:
    """Count the positions of a window along a dimension; 0 for settings that make no sense."""
    if min(kernel, step, gap) < 1 or pad < 0:
        return 0
    room = size + 2 * pad - gap * (kernel - 1) - 1
    if room < 0:
        return 0
    count = (-(-room // step) if ceil else room // step) + 1
    # the last window must begin inside of the tensor or its left padding
    return count - 1 if ceil and (count - 1) * step >= size + pad else count


def _pool(
    x_BCS: torch.Tensor,  # noqa: N803
    num_dimensions: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
) -> Any:
    kernels = _spread(kernel, num_dimensions)
    settings = [kernels, _spread(stride, num_dimensions) or kernels]
    settings += [_spread(value, num_dimensions) for value in (padding, dilation)]
    if x_BCS.dim() != num_dimensions + 2 or not are_plain(x_BCS) or any(len(s) != num_dimensions for s in settings):
        return UNKNOWN
    if any(2 * pad > size for size, pad in zip(kernels, settings[2])):
        return UNKNOWN
    sizes = zip(x_BCS.shape[2:], *settings)
    spatial = [_windows(size, kernel, step, pad, gap, ceil=ceil) for size, kernel, step, pad, gap in sizes]
    return UNKNOWN if min(spatial) < 1 else new_tensor((*x_BCS.shape[:2], *spatial), x_BCS)


def _max_pool(num_dimensions: int) -> Callable[..., Any]:
    def max_pool(
        x_BCS: torch.Tensor,  # noqa: N803
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return _pool(x_BCS, num_dimensions, kernel, stride, padding, dilation, ceil_mode)

    return max_pool


def _average_pool(num_dimensions: int) -> Callable[..., Any]:
    def average_pool(
        x_BCS: torch.Tensor,  # noqa: N803
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Optional[int] = None,
    ) -> Any:
        if divisor_override is not None:
            return UNKNOWN
        return _pool(x_BCS, num_dimensions, kernel, stride, padding, 1, ceil_mode)

    return average_pool


def _adaptive_average_pool(x_BCS: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: N803
    if x_BCS.dim() != 4 or len(output_size) != 2 or min(output_size) < 1 or not are_plain(x_BCS):
        return UNKNOWN
    return new_tensor((*x_BCS.shape[:2], *output_size), x_BCS)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None, p: float = 0.0, causal: bool = False
) -> Any:
    """Attend from each query to all keys; (samples, heads, length, features) are often views of another order."""
    tensors = (query, key, value)
    if mask is not None or p != 0.0 or any(t.dim() != 4 or t.dtype != query.dtype or 0 in t.shape for t in tensors):
        return UNKNOWN
    if not query.dtype.is_floating_point or query.shape != key.shape or query.shape != value.shape:
        return UNKNOWN
    return UNKNOWN if any(t.stride(-1) != 1 for t in tensors) else _ordered_like(query)


def _ordered_like(tensor: torch.Tensor) -> Any:
    """Return a new tensor with its dimensions in memory in the order that they have in that of `tensor`."""
    shape, strides, step = tuple(tensor.shape), [1] * tensor.dim(), 1
    if is_contiguous(tensor):
        return torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if 1 in shape:
        return UNKNOWN
    for dim in sorted(range(tensor.dim()), key=tensor.stride):
        strides[dim] = step
        step *= shape[dim]
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")


def _lstm(
    x_TBF: torch.Tensor,  # noqa: N803
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    p: float,
    _train: bool,
    is_bidirectional: bool,
    batch_first: bool,
) -> Any:
    num_cells = num_layers * (2 if is_bidirectional else 1)
    if x_TBF.dim() != 3 or not are_plain(x_TBF, *states, *weights) or len(states) != 2 or not 0 <= p <= 1:
        return UNKNOWN
    samples, length = x_TBF.shape[:2] if batch_first else (x_TBF.shape[1], x_TBF.shape[0])
    # other counts mean that the outputs are projected
    if states[0].dim() != 3 or len(weights) != num_cells * (4 if has_biases else 2):
        return UNKNOWN
    state_shape = (num_cells, samples, states[0].shape[2])
    if any(tuple(state.shape) != state_shape for state in states) or not _fit_cells(x_TBF, states[0], weights[:2]):
        return UNKNOWN
    output = new_tensor((length, samples, num_cells // num_layers * state_shape[2]), x_TBF)
    return (output.transpose(0, 1) if batch_first else output, *(new_tensor(state_shape, x_TBF) for _ in states))


def _fit_cells(x_TBF: torch.Tensor, state: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:  # noqa: N803
    """Tell whether the first layer's weights are those of four gates for these features and this state."""
    gates = 4 * state.shape[2]
    return [tuple(weight.shape) for weight in weights] == [(gates, x_TBF.shape[2]), (gates, state.shape[2])]


def _upsample(num_settings: int) -> Callable[..., Any]:
    """Make the rule of an interpolation of images; it has `num_settings` between output size and scales."""

    def upsample(x_BCS: torch.Tensor, output_size: Any, *settings: Any) -> Any:  # noqa: N803
        scales: Any = settings[num_settings] if len(settings) > num_settings else None
        if x_BCS.dim() != 4 or not are_plain(x_BCS) or (output_size is None) == (scales is None):
            return UNKNOWN
        sizes = output_size or [math.floor(size * scale) for size, scale in zip(x_BCS.shape[2:], scales)]
        return UNKNOWN if len(sizes) != 2 or min(sizes) < 1 else new_tensor((*x_BCS.shape[:2], *sizes), x_BCS)

    return upsample


LAYERS: Dict[Any, Callable[..., Any]] = {
    aten.adaptive_avg_pool2d.default: _adaptive_average_pool,
    aten.avg_pool2d.default: _average_pool(2),
    aten.batch_norm.default: _batch_norm,
    aten.conv1d.default: _convolution(1),
    aten.conv2d.default: _convolution(2),
    aten.conv3d.default: _convolution(3),
    aten.embedding.default: _embedding,
    aten.group_norm.default: _group_norm,
    aten.layer_norm.default: _layer_norm,
    aten.linear.default: _linear,
    aten.lstm.input: _lstm,
    aten.max_pool1d.default: _max_pool(1),
    aten.max_pool2d.default: _max_pool(2),
    aten.scaled_dot_product_attention.default: _attention,
    aten.upsample_bilinear2d.vec: _upsample(1),
    aten.upsample_nearest2d.vec: _upsample(0),
}
