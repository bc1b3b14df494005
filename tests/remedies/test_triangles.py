"""Triangles and diagonals that are computed without torch's operators for them."""

from __future__ import annotations

import pytest
import torch

from porting.remedies.triangles import embed_diagonal, keep_triangle, read_diagonal

MATRICES = [torch.arange(12.0).reshape(3, 4), torch.arange(30.0).reshape(2, 5, 3)]


@pytest.mark.parametrize("diagonal", [-4, -1, 0, 2, 5])
@pytest.mark.parametrize("x", MATRICES, ids=["matrix", "batch"])
def test_triangles_are_torchs(x, diagonal):
    assert torch.equal(keep_triangle(x, diagonal, is_lower=True), torch.tril(x, diagonal))
    assert torch.equal(keep_triangle(x, diagonal, is_lower=False), torch.triu(x, diagonal))


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (-1, -2)])
def test_a_diagonal_is_torchs(offset, dims):
    x = torch.arange(20.0).reshape(4, 5)

    assert torch.equal(read_diagonal(x, offset, *dims), torch.diagonal(x, offset, *dims))


@pytest.mark.parametrize("offset", [-2, 0, 1])
@pytest.mark.parametrize("dims", [(-2, -1), (0, 2), (-1, 0)])
def test_an_embedded_diagonal_is_torchs(offset, dims):
    x = torch.arange(6.0).reshape(2, 3)

    assert torch.equal(embed_diagonal(x, offset, *dims), torch.diag_embed(x, offset, *dims))
