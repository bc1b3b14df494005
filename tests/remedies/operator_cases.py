"""Operators that the device lacks, on what a layer computes, for tests on any backend."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
import torch.nn.functional as F
from torch import nn

Compute = Callable[[torch.Tensor], Any]

# of a tensor (3, 4, 6) that a layer has computed
FUNCTIONS: Dict[str, Compute] = {
    "tril": lambda x: x.tril(),
    "tril below": lambda x: torch.tril(x, -1),
    "triu above": lambda x: torch.triu(x, diagonal=2),
    "diagonal": lambda x: x.diagonal(dim1=-2, dim2=-1),
    "diagonal above": lambda x: torch.diagonal(x, 1, 2, 1),
    "diagonal below": lambda x: torch.diagonal(x, -2, -2, -1),
    "diag of a vector": lambda x: torch.diag(x[0, 0]),
    "diag of a matrix": lambda x: torch.diag(x[0], 1),
    "diag_embed": lambda x: torch.diag_embed(x),
    "diag_embed above": lambda x: torch.diag_embed(x, offset=2),
    "diag_embed below": lambda x: torch.diag_embed(x, -1, 1, 2),
    "trace": lambda x: x[0].trace(),
    "xlogy": lambda x: torch.xlogy(F.relu(x), x.exp()),
    "logaddexp": lambda x: torch.logaddexp(x, 2 * x),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "nan_to_num": lambda x: torch.nan_to_num(x),
    "nan_to_num of numbers": lambda x: torch.nan_to_num(torch.where(x > 0, x, x.detach() / 0), nan=1.0, neginf=-2.0),
    "sinc": lambda x: torch.sinc(x),
    "heaviside": lambda x: x * torch.heaviside(x.detach(), torch.ones_like(x, device=x.device)),
    "sgn": lambda x: x * torch.sgn(x),
    "logical_xor": lambda x: x * torch.logical_xor(x > 0, x > 1).to(x.dtype),
    "xor": lambda x: x * ((x > 0) ^ (x > 1)).to(x.dtype),
    "dist": lambda x: torch.dist(x, 2 * x),
    "aminmax": lambda x: torch.aminmax(x, dim=1)[0] + torch.aminmax(x, dim=1)[1],
    "kthvalue": lambda x: torch.kthvalue(x, 2, dim=1)[0],
    "topk without order": lambda x: torch.topk(x, 3, sorted=False)[0].square(),
    "nanmean": lambda x: torch.nanmean(x, dim=1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1) * 2,
    "repeat_interleave of all": lambda x: torch.repeat_interleave(x, 3),
    "unflatten": lambda x: x.unflatten(-1, (2, 3)).sum(-1),
    "kron": lambda x: torch.kron(x[0], x[1, :2]),
    "channel_shuffle": lambda x: torch.channel_shuffle(x.unsqueeze(-1), 2).cumsum(1),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.unsqueeze(1), 2).cumsum(1),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 4),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (2, 5)),
    "adaptive_max_pool2d of one dimension": lambda x: F.adaptive_max_pool2d(x, (None, 5)),
    "circular padding": lambda x: F.pad(x, (1, 2), mode="circular"),
    "reflected padding": lambda x: F.pad(x, (2, 1), mode="reflect"),
    "replicated padding": lambda x: F.pad(x, (0, 3), mode="replicate"),
    "grid_sample": lambda x: F.grid_sample(x[:, None], x[:, :, None, :2] * 2, align_corners=False),
    "grid_sample at borders": lambda x: F.grid_sample(x[:, None], x[:, :, None, :2] * 2, "bilinear", "border", True),
    "grid_sample of cubes": lambda x: F.grid_sample(x[:, None], x[:, :, None, 1:3], "bicubic", "reflection", False),
    "grid_sample of the nearest": lambda x: F.grid_sample(
        x[:, None], x.detach()[:, :, None, :2], "nearest", "zeros", True
    ),
    "grid_sample of volumes": lambda x: F.grid_sample(x[None, None], x[None, :, None, :, :3], align_corners=True),
    "affine_grid": lambda x: F.affine_grid(x[:, :2, :3], [3, 1, 4, 5], align_corners=False),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, dim=1),
    "cummax": lambda x: torch.cummax(x, 2)[0],
    "cummin": lambda x: x.cummin(dim=1)[0] * 2,
    "pdist": lambda x: F.pdist(x.reshape(-1, 6), p=1),
    "nuclear norm": lambda x: torch.norm(x[:, :2], "nuc", dim=(1, 2)),
    "matrix norm of order 2": lambda x: torch.linalg.norm(x[..., :2], 2, dim=(1, 2)),
    "matrix norm of order -2": lambda x: torch.linalg.matrix_norm(x[..., 3:5], -2),
    "searchsorted": lambda x: x * torch.searchsorted(torch.sort(x.detach()).values, x.detach(), right=True),
    "searchsorted of a number": lambda x: x * torch.searchsorted(torch.sort(x[0, 0].detach()).values, 0.1),
    "isin": lambda x: x * torch.isin(x.detach().argsort(-1), x.detach().argmax(-1)).to(x.dtype),
    "histc": lambda x: x[0, :1] * torch.histc(x.detach(), bins=6, min=-1, max=1),
    "histc of the own range": lambda x: x[0, :1] * x.detach().histc(6),
    "quantile": lambda x: torch.quantile(x, 0.3, dim=1),
    "quantile of all": lambda x: x.quantile(0.5, interpolation="midpoint"),
    "nanquantile": lambda x: torch.nanquantile(x, 0.8, dim=-1, keepdim=True),
    "masked mean": lambda x: x[x > 0].mean(),
    "masked logarithm": lambda x: torch.log(x[x > 0]).sum(),
    "masked_select": lambda x: torch.masked_select(x, x > 0).square().mean(),
    "masked rows": lambda x: (x[x.sum(-1) > 0] * 2 - 1).abs().mean(),
    "write with steps": lambda x: write_each_second(x),
    "masked write": lambda x: write_where_positive(x),
    "masked cross entropy": lambda x: class_loss(x),
    "masked binary cross entropy": lambda x: binary_loss(x),
}

if hasattr(torch, "nonzero_static"):
    FUNCTIONS["nonzero_static"] = lambda x: (x, torch.nonzero_static(x > 0, size=5))
    FUNCTIONS["nonzero_static of more"] = lambda x: (x, torch.nonzero_static(x > 0, size=90, fill_value=-2))


def write_where_positive(x: torch.Tensor) -> torch.Tensor:
    """Double the rows with a positive sum."""
    mask = x.sum(-1) > 0
    result = x.clone()
    result[mask] = x[mask] * 2
    return result


def write_each_second(x: torch.Tensor) -> torch.Tensor:
    """Write tensors and a number into slices with steps."""
    result = x.clone()
    result[..., 1::2] = x[..., :3] * 2
    result[:, ::3] = 1.0
    return result


def class_loss(x: torch.Tensor) -> torch.Tensor:
    """Compute a loss of some rows, by the class that comes after the largest value."""
    mask = x[..., 0] > 0
    return F.cross_entropy(x[mask], ((x.argmax(-1) + 1) % 6)[mask])


def binary_loss(x: torch.Tensor) -> torch.Tensor:
    """Compute a loss of some elements, whose labels are ones."""
    mask = x < 0.5
    return nn.BCEWithLogitsLoss()(x[mask], torch.ones_like(x, device=x.device)[mask])


MODULES: Dict[str, Callable[[], nn.Module]] = {
    "LSTM of 2 layers": lambda: nn.LSTM(6, 5, num_layers=2, batch_first=True),
    "LSTM of two directions": lambda: nn.LSTM(6, 5, bidirectional=True),
    "LSTM of 3 layers, two directions": lambda: nn.LSTM(6, 5, num_layers=3, bidirectional=True, batch_first=True),
    "LSTM without biases": lambda: nn.LSTM(6, 5, bias=False),
    "GRU of 2 layers": lambda: nn.GRU(6, 5, num_layers=2),
    "GRU of two directions": lambda: nn.GRU(6, 5, bidirectional=True, batch_first=True),
    "GRU of 2 layers without biases": lambda: nn.GRU(6, 5, num_layers=2, bias=False),
    "RNN of 2 layers": lambda: nn.RNN(6, 5, num_layers=2, bidirectional=True),
    "RNN of 2 layers with ReLU": lambda: nn.RNN(6, 5, num_layers=2, nonlinearity="relu", batch_first=True),
    "convolution that keeps the size": lambda: nn.Conv1d(4, 5, 3, padding="same"),
    "convolution of an even size": lambda: nn.Conv1d(4, 5, 4, padding="same", dilation=1),
    "convolution without padding": lambda: nn.Conv1d(4, 5, 3, padding="valid"),
    "convolution that goes round": lambda: nn.Conv1d(4, 5, 3, padding=1, padding_mode="circular"),
}


class Computed(nn.Module):
    """A layer, then `compute`, then the mean square of all that this gives, as the model's own loss."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(6, 6)
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = flatten(self.compute(self.layer(x)))
        return sum(result.float().pow(2).mean() for result in results)  # type: ignore[return-value]


def flatten(value: Any) -> Any:
    """List the tensors in nested tuples."""
    return [value] if isinstance(value, torch.Tensor) else [item for part in value for item in flatten(part)]


def make_model(name: str) -> nn.Module:
    """Make the model of a case."""
    torch.manual_seed(5)
    return Computed(MODULES[name]() if name in MODULES else FUNCTIONS[name])


def make_input() -> torch.Tensor:
    """Make the batch, the same each time."""
    return torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2))
