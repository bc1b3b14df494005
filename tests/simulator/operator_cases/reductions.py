"""Sums and their like, sorting, products of matrices, norms and distances."""

from __future__ import annotations

from typing import Dict

import torch
import torch.nn.functional as F

from . import Case, cases

REDUCTIONS: Dict[str, Case] = {
    **cases(
        {
            "torch.sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True)),
            "torch.mean": lambda x: (x.mean(), x.mean(0, keepdim=True)),
            "torch.prod": lambda x: (x.prod(), x.prod(1)),
            "torch.std": lambda x: (x.std(), torch.std(x, 1, unbiased=False), torch.std(x, 0, correction=0)),
            "torch.var": lambda x: (x.var(), torch.var(x, 1, unbiased=False)),
            "torch.std_mean": lambda x: torch.std_mean(x, 1),
            "torch.var_mean": lambda x: torch.var_mean(x, 1),
            "torch.logsumexp": lambda x: torch.logsumexp(x, 1),
            "torch.nansum": lambda x: torch.nansum(x, 1),
            "torch.amax": lambda x: torch.amax(x, 1),
            "torch.amin": lambda x: torch.amin(x, (0, 1)),
            "torch.median": lambda x: (x.median(), x.median(1).values),
            "torch.max": lambda x: (x.max(), x.max(1).values),
            "torch.min": lambda x: (x.min(), x.min(1).values),
            "torch.topk": lambda x: torch.topk(x, 2).values,
            "torch.sort": lambda x: (torch.sort(x, 1, descending=True).values, torch.sort(x, stable=True, dim=0)[0]),
            "torch.cumsum": lambda x: torch.cumsum(x, 1),
            "torch.cumprod": lambda x: torch.cumprod(x, 1),
            "torch.norm": lambda x: (torch.norm(x), x.norm(p=1, dim=1), torch.norm(x, "fro", dim=0)),
            "torch.linalg.vector_norm": lambda x: (torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 3, 1)),
            "torch.linalg.matrix_norm": lambda x: (torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1)),
            "torch.linalg.norm": lambda x: (torch.linalg.norm(x), torch.linalg.norm(x, dim=1)),
        }
    ),
    **cases(
        {
            "torch.all": lambda x: ((x > -9).all(), (x > 0).all(1)),
            "torch.any": lambda x: ((x > 0).any(), (x > 1).any(1, keepdim=True)),
            "torch.argmax": lambda x: (x.argmax(), x.argmax(1)),
            "torch.argmin": lambda x: (x.argmin(), x.argmin(0, keepdim=True)),
            "torch.argsort": lambda x: torch.argsort(x, 1),
            "torch.count_nonzero": lambda x: torch.count_nonzero(x > 0, 1),
            "sum of truth values": lambda x: (x > 0).sum(1),
            "indices of topk": lambda x: torch.topk(x, 2, largest=False).indices,
            "indices of max": lambda x: x.max(1).indices,
            "torch.bucketize": lambda x: torch.bucketize(x, torch.arange(-1.0, 1.5, 0.5), right=True),
        },
        has_gradient=False,
    ),
    **cases({"torch.nn.functional.softmax": lambda x: F.softmax(x, -1)}),
    **cases({"torch.nn.functional.log_softmax": lambda x: x.log_softmax(0)}),
}

MATRICES: Dict[str, Case] = {
    **cases(
        {
            "torch.matmul": lambda x, y: x @ y,
            "torch.mm": lambda x, y: torch.mm(x, y),
            "torch.addmm": lambda x, y: torch.addmm(x[:, :3], x, y, beta=0.5, alpha=2),
            "torch.einsum": lambda x, y: torch.einsum("ij,jk->ki", x, y),
            "torch.tensordot": lambda x, y: torch.tensordot(x, y, dims=1),
            "torch.chain_matmul": lambda x, y: torch.linalg.multi_dot([x, y, x]),
            "out= of a product": lambda x, y: torch.mm(x.detach(), y, out=torch.empty(3, 3, dtype=x.dtype)) + x[:, :3],
        },
        shapes=((3, 4), (4, 3)),
    ),
    **cases(
        {
            "torch.mv": lambda x, y: torch.mv(x, y),
            "torch.addmv": lambda x, y: torch.addmv(x[:, 0], x, y),
            "torch.dot": lambda x, y: torch.dot(x[0], y),
            "torch.inner": lambda x, y: torch.inner(x, y),
            "torch.outer": lambda x, y: torch.outer(x[0], y),
            "torch.ger": lambda x, y: torch.ger(x[0], y),
            "torch.addr": lambda x, y: torch.addr(x, x[:, 0], y),
        },
        shapes=((3, 4), (4,)),
    ),
    **cases(
        {
            "torch.bmm": torch.bmm,
            "torch.baddbmm": lambda x, y: torch.baddbmm(x[:, :, :3], x, y),
            "torch.addbmm": lambda x, y: torch.addbmm(x[0, :, :3], x, y),
            "matmul of batches": torch.matmul,
        },
        shapes=((2, 3, 4), (2, 4, 3)),
    ),
    **cases(
        {
            "torch.cdist": lambda x, y: torch.cdist(x, y) + torch.cdist(x, y, p=1.0),
            "torch.nn.CosineSimilarity": torch.nn.CosineSimilarity(),
            "torch.nn.PairwiseDistance": torch.nn.PairwiseDistance(p=1),
            "torch.nn.functional.cosine_similarity": F.cosine_similarity,
            "torch.nn.functional.pairwise_distance": F.pairwise_distance,
        },
        shapes=((3, 4), (3, 4)),
    ),
    **cases(
        {
            "torch.cross": lambda x, y: torch.cross(x, y, dim=1),
            "torch.linalg.cross": torch.linalg.cross,
        },
        shapes=((4, 3), (4, 3)),
    ),
}
