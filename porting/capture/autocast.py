"""Decides what `torch.autocast` means in a graph: which operators compute in bfloat16, which in single precision.

The recorder sees operators before torch's own autocast would cast their arguments, so the casts are recorded here:
matrix products and convolutions get bfloat16; what loses too much in eight digits (losses, norms, exponentials, sums)
and what has no bfloat16 kernel on a CPU gets float32; everything else takes what comes, as torch promotes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List, Optional, Sequence

import torch

from porting.torch_insides.operators import OpOverload

__all__ = ["LOWER_PRECISION", "SINGLE_PRECISION", "autocast_targets", "autocast_types", "enter_autocast"]

# Forward says either name for its own device: `x.device.type` is "ipu" in a capture.
_DEVICES = ("cpu", "ipu")

_FLOATS = frozenset([torch.float32, torch.float16, torch.bfloat16])

# Those of torch's CPU autocast, and products that torch takes apart into them.
LOWER_PRECISION = frozenset(
    "linear matmul mm bmm addmm addbmm baddbmm mv addmv linalg_vecdot linalg_multi_dot chain_matmul einsum tensordot "
    "inner conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution "
    "prelu scaled_dot_product_attention".split()
)
"""Operators whose floating-point arguments are cast to bfloat16."""

# Torch's lists for the CPU and for CUDA, where both are cautious for a reason.
_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy_loss ctc_loss "
    "hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_margin_loss_forward nll_loss nll_loss2d nll_loss_nd poisson_nll_loss "
    "smooth_l1_loss soft_margin_loss triplet_margin_loss"
)
_EXPONENTIALS = (
    "acos acosh asin asinh atanh cosh sinh tan exp exp2 expm1 log log10 log2 log1p pow float_power reciprocal rsqrt "
    "softplus softmax log_softmax _softmax _log_softmax logsumexp logcumsumexp logaddexp logaddexp2 logit xlogy "
    "erfinv digamma lgamma mvlgamma polygamma"
)
_SUMS = (
    "sum nansum mean nanmean var var_mean std std_mean prod cumsum cumprod norm dist cdist pdist pairwise_distance "
    "cosine_similarity renorm frobenius_norm nuclear_norm rms_norm trace trapezoid cumulative_trapezoid cov corrcoef"
)
_WITHOUT_KERNEL = (
    "adaptive_avg_pool3d avg_pool3d max_unpool2d max_unpool3d reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d grid_sampler grid_sampler_2d grid_sampler_3d "
    "affine_grid_generator quantile nanquantile stft istft polar view_as_complex cholesky cholesky_inverse "
    "cholesky_solve inverse det logdet slogdet lu_solve orgqr ormqr pinverse qr svd symeig matrix_exp matrix_power "
    "geqrf cross bilinear rrelu histc bucketize searchsorted"
)
# What they carry from step to step adds up its rounding, and on a CPU bfloat16 makes them no faster.
_RECURRENT = "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
SINGLE_PRECISION = frozenset(f"{_LOSSES} {_EXPONENTIALS} {_SUMS} {_RECURRENT} {_WITHOUT_KERNEL}".split())
"""Operators whose bfloat16 arguments are cast to float32; those whose names begin like these families are, too."""

_SINGLE_FAMILIES = ("linalg_", "fft_", "special_", "upsample_bicubic")

# Their kernels compute statistics in float32 and take weights of float32 with activations of either type.
_MIXED = frozenset("batch_norm layer_norm group_norm instance_norm native_batch_norm native_layer_norm".split())


@contextmanager
def enter_autocast(dtype: torch.dtype) -> Iterator[None]:
    """Let `forward` find autocast switched on with `dtype`, and inner regions of its own switch it off."""
    before = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES]
    try:
        for device in _DEVICES:
            torch.set_autocast_dtype(device, dtype)
            torch.set_autocast_enabled(device, True)
        yield
    finally:
        for device, enabled, former in before:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, former)
        # it may hold casts of this capture's tensors, which are of no use outside
        torch.clear_autocast_cache()


def autocast_types() -> Sequence[torch.dtype]:
    """Return the types that the regions in force ask for; none where one has switched autocast off."""
    # a region is for one name of the device, and what it says of one is meant for both
    is_on = all(torch.is_autocast_enabled(device) for device in _DEVICES)
    return [torch.get_autocast_dtype(device) for device in _DEVICES] if is_on else []


def autocast_targets(
    operator: OpOverload, dtypes: Sequence[torch.dtype], lower: torch.dtype
) -> Optional[List[torch.dtype]]:
    """Return the types that autocast to `lower` casts the tensor arguments of `operator` to; None if it has no say.

    >>> autocast_targets(torch.ops.aten.mm.default, [torch.float32, torch.bfloat16], torch.bfloat16)
    [torch.bfloat16, torch.bfloat16]
    >>> autocast_targets(torch.ops.aten.relu.default, [torch.bfloat16], torch.bfloat16) is None
    True
    """
    name = operator.overloadpacket.__name__
    if name in _MIXED:
        return list(dtypes)
    if name in LOWER_PRECISION:
        return [lower if dtype in _FLOATS else dtype for dtype in dtypes]
    # operators of other libraries know nothing of bfloat16
    plain_name = name.rstrip("_")
    is_single = plain_name in SINGLE_PRECISION or plain_name.startswith(_SINGLE_FAMILIES)
    if operator.namespace != "aten" or is_single:
        return [torch.float32 if dtype == lower else dtype for dtype in dtypes]
    return None
