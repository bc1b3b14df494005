"""Compute BatchNorm with `momentum=None`, whose running statistics are the mean of those of all batches.

The operator table has it for the BatchNorm layers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute
from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["SUBSTITUTES", "normalise_with_cumulative_average"]


def normalise_with_cumulative_average(layer: Any, x: torch.Tensor) -> Any:
    """Do what `nn.BatchNorm*d` does in train mode, with a count of batches that is a float on the device.

    torch reads the count on the host, to compute the share of the batch from it.
    """
    count = layer.num_batches_tracked
    is_cumulative = layer.momentum is None and layer.training and layer.track_running_stats
    if not is_cumulative or count is None or not count.is_floating_point() or x.dim() < 2:
        return Fallback
    dims = [0, *range(2, x.dim())]
    with torch.no_grad():
        count.add_(1)
        share = 1.0 / count
        values = x.detach().to(layer.running_mean.dtype)
        layer.running_mean.copy_(share * values.mean(dims) + (1 - share) * layer.running_mean)
        layer.running_var.copy_(share * values.var(dims, unbiased=True) + (1 - share) * layer.running_var)
    return F.batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)


SUBSTITUTES = tuple(
    OperatorSubstitute("nn.BatchNorm with momentum=None", kind, normalise_with_cumulative_average)
    for kind in (BATCH_NORMS if isinstance(BATCH_NORMS, tuple) else (BATCH_NORMS,))
)
