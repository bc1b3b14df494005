"""Padding that goes round or has no gradient on the device, and convolutions whose padding is a word."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence, Union

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "convolve", "pad_edges"]


def pad_edges(x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """Pad the last dimensions with what is on the other side, mirrored, or at the edge; `pad` is that of `F.pad`."""
    if mode not in ("circular", "reflect", "replicate") or min(pad) < 0:
        return Fallback
    for position in range(len(pad) // 2):
        dim = x.dim() - 1 - position
        before, after = pad[2 * position], pad[2 * position + 1]
        edges = _find_edges(x, dim, before, after, mode)
        x = torch.cat([part for part in (edges[0], x, edges[1]) if part is not None], dim)
    return x


def _find_edges(x: torch.Tensor, dim: int, before: int, after: int, mode: str) -> Any:
    length = x.shape[dim]
    if mode == "circular":
        first, last = x.narrow(dim, length - before, before), x.narrow(dim, 0, after)
    elif mode == "reflect":
        first, last = x.narrow(dim, 1, before).flip(dim), x.narrow(dim, length - 1 - after, after).flip(dim)
    else:
        first = x.narrow(dim, 0, 1).expand(*x.shape[:dim], before, *x.shape[dim + 1 :])
        last = x.narrow(dim, length - 1, 1).expand(*x.shape[:dim], after, *x.shape[dim + 1 :])
    return (first if before else None, last if after else None)


def convolve(
    operator: Callable[..., Any],
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Union[str, Any] = 0,
    dilation: Any = 1,
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
