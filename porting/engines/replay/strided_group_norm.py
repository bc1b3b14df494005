"""Group normalisation whose groups are strided: channel c belongs to group c modulo the number of groups."""

from __future__ import annotations

from typing import Optional

import torch

from ...capture.subgraphs import bodies_of

__all__ = ["stride_group_norms", "strided_group_norm"]


def stride_group_norms(graph: torch.fx.Graph) -> None:
    """Exchange every group normalisation of `graph` for the strided one, also in its loops and branches."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.group_norm.default:
            node.target = strided_group_norm
        for body in bodies_of(node):
            stride_group_norms(body.graph)


def strided_group_norm(
    x: torch.Tensor,
    num_groups: int,
    weight: Optional[torch.Tensor] = None,
    bias: Optional[torch.Tensor] = None,
    eps: float = 1e-5,
    _cudnn_enabled: bool = True,
) -> torch.Tensor:
    """Normalise `x`, [sample, channel, ...], as `torch.group_norm` does, in groups of every `num_groups`-th channel."""
    channels = x.shape[1]
    # Channel c = k * groups + g becomes [k, g]; transposed, the channels of a group lie together, which is where
    # torch's operator expects them.
    strided = x.unflatten(1, (channels // num_groups, num_groups)).transpose(1, 2).flatten(1, 2)
    # without weight and bias, which belong to channels in their own order
    normal = torch.group_norm(strided, num_groups, None, None, eps)
    result = normal.unflatten(1, (num_groups, channels // num_groups)).transpose(1, 2).flatten(1, 2)
    per_channel = (1, channels, *(1 for _ in x.shape[2:]))
    if weight is not None:
        result = result * weight.view(per_channel)
    return result if bias is None else result + bias.view(per_channel)
