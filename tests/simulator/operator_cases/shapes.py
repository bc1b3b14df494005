"""Indexing, slicing, joining, views, scatters, and tensors made in `forward`."""

from __future__ import annotations

from typing import Dict

import torch
import torch.nn.functional as F

from . import Case, cases

ROWS = torch.tensor([2, 0, 2])
COLUMNS = torch.tensor([[0, 3], [1, 1], [2, 0]])
FULL = torch.tensor([[0, 3, 1, 2], [1, 1, 0, 2], [2, 0, 1, 1]])


def _assigned(x, index, value):
    x = x * 1
    x[index] = value
    return x


def _written(view):
    def call(x):
        x = x * 1
        view(x).mul_(3)
        return x

    return call


SHAPES: Dict[str, Case] = {
    **cases(
        {
            "torch.Tensor.T": lambda x: x.T,
            "torch.t": lambda x: x.t(),
            "torch.transpose": lambda x: x.transpose(0, 1),
            "torch.swapaxes": lambda x: torch.swapaxes(x, 0, 1),
            "torch.movedim": lambda x: torch.movedim(x, 0, 1),
            "torch.permute": lambda x: torch.permute(x, (1, 0)),
            "torch.Tensor.permute": lambda x: x.permute(1, 0),
            "torch.Tensor.contiguous": lambda x: x.t().contiguous(),
            "torch.clone": torch.clone,
            "torch.reshape": lambda x: x.reshape(2, -1),
            "torch.Tensor.view": lambda x: x.view(6, 2),
            "torch.Tensor.view_as": lambda x: x.view_as(x.reshape(4, 3)),
            "torch.flatten": lambda x: torch.flatten(x[None], 1),
            "torch.squeeze": lambda x: x[:1].squeeze(0) + x[None].squeeze()[0],
            "torch.unsqueeze": lambda x: x.unsqueeze(1),
            "torch.Tensor.expand": lambda x: x[:1].expand(5, -1),
            "torch.Tensor.expand_as": lambda x: x[:1].expand_as(x),
            "torch.broadcast_to": lambda x: torch.broadcast_to(x[:1], (2, 3, 4)),
            "torch.Tensor.repeat": lambda x: x.repeat(2, 1, 2),
            "torch.tile": lambda x: torch.tile(x, (2, 1)),
            "torch.roll": lambda x: torch.roll(x, 1) + torch.roll(x, (1, -1), (0, 1)),
            "torch.flip": lambda x: torch.flip(x, (0, 1)),
            "torch.Tensor.unfold": lambda x: x.unfold(1, 2, 1),
            "torch.Tensor.size": lambda x: x.reshape(x.size(1), x.shape[0]) * x.numel(),
            "torch.cat": lambda x: torch.cat([x, x * 2], 1),
            "torch.stack": lambda x: torch.stack([x, x + 1]),
            "torch.hstack": lambda x: torch.hstack((x, x)),
            "torch.vstack": lambda x: torch.vstack((x, x)),
            "torch.dstack": lambda x: torch.dstack((x, x)),
            "torch.chunk": lambda x: torch.chunk(x, 2, 1),
            "torch.unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2, 1),
            "torch.split": lambda x: torch.split(x, [1, 3], 1),
            "torch.split_with_sizes": lambda x: torch.split_with_sizes(x, [1, 2]),
            "torch.unbind": lambda x: torch.unbind(x, 1),
            "torch.select": lambda x: torch.select(x, 1, 2),
            "torch.narrow": lambda x: torch.narrow(x, 1, 1, 2),
            "torch.meshgrid": lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij"),
            "torch.cartesian_prod": lambda x: torch.cartesian_prod(x[0], x[1]),
            "torch.Tensor.__getitem__": lambda x: (x[1], x[:, 1:3], x[..., -1], x[None, ::2], x[-1:, [0, 2]]),
            "torch.Tensor.__setitem__": lambda x: _assigned(x, (slice(0, 2), 1), 5.0) + _assigned(x, x > 0, 2.0),
            "a write to a view": _written(lambda x: x[1:].t()[0]),
            "a write to a reshaped view": _written(lambda x: x.view(2, 6)[1]),
            "torch.Tensor.masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
            "torch.nn.functional.pad": lambda x: F.pad(x, (1, 2), value=3.0) + F.pad(x, (2, 1)),
            "torch.Tensor.new_ones": lambda x: x + x.new_ones(4),
            "torch.Tensor.new_zeros": lambda x: x + x.new_zeros(3, 4),
            "torch.Tensor.new_full": lambda x: x + x.new_full((4,), 2.5),
            "torch.full_like": lambda x: x * torch.full_like(x, 2.0),
            "torch.ones_like": lambda x: x + torch.ones_like(x),
            "torch.zeros_like": lambda x: x + torch.zeros_like(x),
            "torch.empty_like": lambda x: x + torch.empty_like(x).fill_(1.0),
            "torch.ones": lambda x: x + torch.ones(4, dtype=x.dtype),
            "torch.zeros": lambda x: x + torch.zeros(4, dtype=x.dtype),
            "torch.full": lambda x: x * torch.full((3, 1), 2.0, dtype=x.dtype),
            "torch.empty": lambda x: x + torch.empty(4, dtype=x.dtype).zero_(),
            "torch.arange": lambda x: x * torch.arange(4) + torch.arange(0.0, 1.0, 0.25, dtype=x.dtype),
            "torch.linspace": lambda x: x * torch.linspace(0, 1, 4, dtype=x.dtype),
            "torch.logspace": lambda x: x * torch.logspace(0, 1, 4, dtype=x.dtype),
            "torch.tensor": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype),
            "torch.eye": lambda x: x @ torch.eye(4, device=x.device, dtype=x.dtype),
            "torch.triu": lambda x: x * torch.ones(3, 4, dtype=x.dtype).triu_(),
            "torch.tril": lambda x: x * torch.tril(torch.ones(3, 4, dtype=x.dtype)),
            "torch.Tensor.fill_": lambda x: x + torch.empty(4, dtype=x.dtype).fill_(2.0),
            "torch.Tensor.zero_": lambda x: x + torch.ones(4, dtype=x.dtype).zero_(),
            "torch.Tensor.detach": lambda x: x * x.detach(),
        }
    ),
    **cases({"a write to a chunk": _written(lambda x: x.chunk(2, 1)[1])}, has_gradient=False),
    **cases(
        {
            "torch.index_select": lambda x, i: x.index_select(0, i),
            "torch.index_fill": lambda x, i: x.index_fill(0, i, 2.0),
            "torch.Tensor.index_fill_": lambda x, i: (x * 1).index_fill_(0, i, 2.0),
            "torch.index_put": lambda x, i: x.index_put((i,), x[0], accumulate=True),
            "torch.Tensor.index_put_": lambda x, i: (x * 1).index_put_((i[:2],), x[:2] * 2),
            "torch.index_reduce": lambda x, i: x.index_reduce(0, i, x * 2, "amax"),
            "torch.index_add": lambda x, i: x.index_add(0, i, x * 2),
            "indices of rows": lambda x, i: x[i],
            "indices of elements": lambda x, i: x[i, i],
            "an index of no dimensions": lambda x, i: (
                x[i[0]],
                x[:, i[1]],
                x[i[0], 1:],
                x[..., i[1]],
                x[None, i[0] - 3],
            ),
            "assignment by an index of no dimensions": lambda x, i: (
                _assigned(x, i[0], 3.0) + _assigned(x, (slice(None), i[0]), x[:, 0]) + _assigned(x, (i[1], 2), 5.0)
            ),
        },
        integers=(ROWS,),
    ),
    **cases(
        {
            "torch.gather": lambda x, i: x.gather(1, i),
            "torch.take_along_dim": lambda x, i: torch.take_along_dim(x, i, 1),
        },
        integers=(COLUMNS,),
    ),
    **cases(
        {
            "torch.scatter": lambda x, i: (
                x.scatter(1, i[:, :1], 2.0) + torch.zeros_like(x).scatter(1, i[:, 1:2], x[:, :1])
            ),
            "torch.scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
            "torch.scatter_reduce": lambda x, i: (
                torch.zeros_like(x).scatter_reduce(1, i, x, "amax", include_self=False),
                x.scatter_reduce(1, i, x, "sum"),
                x.scatter_reduce(1, i, x, "mean"),
            ),
        },
        integers=(FULL,),
    ),
    **cases(
        {
            "torch.nn.functional.one_hot": lambda x, i: F.one_hot(i, 4),
            "torch.bincount": lambda x, i: torch.bincount(i, minlength=4),
            "torch.bincount with weights": lambda x, i: torch.bincount(i, weights=x[:, 0].float(), minlength=4),
            "torch.bincount with integer weights": lambda x, i: torch.bincount(i, weights=i + 2, minlength=4),
        },
        integers=(ROWS,),
        has_gradient=False,
    ),
}
