"""Pad with what is on the other side, mirrored or at the edge, and convolve with a padding that is a word.

The operator table has it for `F.pad` and the convolutions of `torch.nn.functional`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence, Union

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "convolve", "pad_edges"]


def pad_edges(x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Any:
    """Pad the last dimensions with what is on the other side, mirrored, or at the edge; `pad` is that of `F.pad`."""
    if mode not in ("circular", "reflect", "replicate") or min(pad) < 0:
        return Fallback
    for position in range(len(pad) // 2):
        dim = x.dim() - 1 - position
        before, after = pad[2 * position], pad[2 * position + 1]
        # without those of no width: a device has no tensors without elements
        first = [_find_edge(x, dim, before, mode, is_first=True)] if before else []
        last = [_find_edge(x, dim, after, mode, is_first=False)] if after else []
        x = torch.cat([*first, x, *last], dim) if first or last else x
    return x


def _find_edge(x: torch.Tensor, dim: int, width: int, mode: str, *, is_first: bool) -> torch.Tensor:
    """Find what is put before the first or after the last position of `dim`."""
    length = x.shape[dim]
    if mode == "circular":
        return x.narrow(dim, length - width if is_first else 0, width)
    if mode == "reflect":
        return x.narrow(dim, 1 if is_first else length - 1 - width, width).flip(dim)
    return x.narrow(dim, 0 if is_first else length - 1, 1).expand(*x.shape[:dim], width, *x.shape[dim + 1 :])


def convolve(
    operator: Callable[..., Any],
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    stride: Union[int, Sequence[int]] = 1,
    padding: Union[str, Any] = 0,
    dilation: Union[int, Sequence[int]] = 1,
    groups: int = 1,
) -> Any:
    """Convolve with a padding of "same" or "valid" as numbers; `Fallback` where it is a number already."""
    if not isinstance(padding, str):
        return Fallback
    num_dims = weight.dim() - 2
    steps = [dilation] * num_dims if isinstance(dilation, int) else list(dilation) * (num_dims // len(dilation))
    totals = [step * (size - 1) if padding == "same" else 0 for step, size in zip(steps, weight.shape[2:])]
    uneven = [total % 2 for total in totals]
    if any(uneven):
        # torch puts the odd one at the end
        input = F.pad(input, [side for odd in reversed(uneven) for side in (0, odd)])
    return operator(input, weight, bias, stride, [total // 2 for total in totals], dilation, groups)


SUBSTITUTES = (
    OperatorSubstitute("F.pad", F.pad, pad_edges),
    *(
        OperatorSubstitute(f"F.{operator.__name__}", operator, functools.partial(convolve, operator))
        for operator in (F.conv1d, F.conv2d, F.conv3d)
    ),
)
