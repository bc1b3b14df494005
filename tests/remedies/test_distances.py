"""Distances of rows and norms of narrow matrices are those of torch, with their gradients."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import porting
from porting import Fallback
from porting.remedies.distances import measure_matrices, measure_pairs
from tests.remedies.parity import assert_same_gradients, assert_same_values, assert_trains_like_plain


def make_rows(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def train_layer(compute, *shape):
    class Measured(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(shape[-1], shape[-1])

        def forward(self, x):
            return compute(self.layer(x)).pow(2).mean()

    assert_trains_like_plain(Measured, make_rows(*shape))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("shape", [(2, 1), (2, 5), (7, 3)])
def test_distances_of_pairs_and_their_gradients_are_those_of_torch(shape, p):
    assert_same_gradients(
        functools.partial(torch.nn.functional.pdist, p=p), functools.partial(measure_pairs, p=p), make_rows(*shape)
    )


def test_equal_rows_have_a_distance_without_a_gradient():
    assert_same_gradients(torch.pdist, measure_pairs, torch.ones(3, 2))


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 2), (2, 6), (6, 2), (3, 1), (4, 2, 3), (2, 3, 3, 2)])
def test_norms_of_narrow_matrices_and_their_gradients_are_those_of_torch(shape, ord):
    assert_same_gradients(
        functools.partial(torch.linalg.matrix_norm, ord=ord),
        functools.partial(measure_matrices, ord=ord),
        make_rows(*shape),
    )


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("dim", [(0, 1), (1, 0), (-1, 1), (2, 0)])
def test_norms_over_two_dimensions_are_those_of_torch(dim, keepdim, ord):
    assert_same_values(torch.linalg.matrix_norm, measure_matrices, make_rows(2, 2, 4), ord, dim, keepdim)


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
@pytest.mark.parametrize(
    "matrix",
    [
        [[0.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [3.0, 4.0]],
        [[2.0, 0.0], [0.0, 2.0]],
        [[1.0, 2.0], [2.0, 4.0]],
        [[1.0, 1.0], [1.0, 1.0 + 2**-12]],
        [[1e4, 1.0, 2.0], [1e-4, 2.0, 1.0]],
    ],
    ids=["zero", "a row of zeros", "equal values", "rank one", "almost rank one", "far apart"],
)
def test_matrices_of_little_rank_have_exact_norms(matrix, ord):
    x = torch.tensor(matrix)
    exact = torch.linalg.matrix_norm(x.double(), ord)

    # as exact as singular values are: by the largest of them
    scale = float(torch.linalg.matrix_norm(x.double(), 2))
    assert float(measure_matrices(x, ord)) == pytest.approx(float(exact), abs=1e-6 * scale)


@pytest.mark.parametrize("ord", [2, "nuc"])
def test_equal_singular_values_have_the_gradient_of_torch(ord):
    assert_same_gradients(
        functools.partial(torch.linalg.matrix_norm, ord=ord),
        functools.partial(measure_matrices, ord=ord),
        torch.eye(2) * 3,
    )


def test_another_type_can_be_asked_for():
    x = make_rows(2, 3)

    value = measure_matrices(x, 2, dtype=torch.float64)

    torch.testing.assert_close(value, torch.linalg.matrix_norm(x, 2, dtype=torch.float64), rtol=1e-12, atol=0.0)


COMPUTED_BY_OTHERS = {
    "torch.pdist": (lambda x: torch.pdist(x), (5, 3)),
    "pdist of order 1": (lambda x: torch.nn.functional.pdist(x, p=1), (5, 3)),
    "torch.linalg.norm of order 2": (lambda x: torch.linalg.norm(x, 2), (5, 2)),
    "torch.linalg.norm, nuclear": (lambda x: torch.linalg.norm(x, ord="nuc", dim=(0, 2)), (2, 5, 3)),
    "torch.linalg.matrix_norm of order -2": (lambda x: torch.linalg.matrix_norm(x, -2), (4, 2, 3)),
    "torch.norm, nuclear": (lambda x: torch.norm(x, "nuc", dim=(1, 2), keepdim=True), (4, 2, 3)),
    "torch.Tensor.norm, nuclear": (lambda x: x.norm("nuc"), (3, 2)),
}


@pytest.mark.parametrize("name", COMPUTED_BY_OTHERS)
def test_a_model_trains_like_plain(name):
    compute, shape = COMPUTED_BY_OTHERS[name]

    train_layer(compute, *shape)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.linalg.norm(x),
        lambda x: torch.linalg.norm(x[0], 1),
        lambda x: torch.linalg.norm(x, -float("inf"), dim=(0, 2)),
        lambda x: torch.linalg.norm(x, 3, dim=1),
        lambda x: torch.linalg.matrix_norm(x, "fro", keepdim=True),
        lambda x: torch.linalg.matrix_norm(x, -1),
        lambda x: torch.norm(x, 2, dim=(1, 2)),
        lambda x: torch.norm(x, float("inf"), dim=1, dtype=torch.float32),
        lambda x: x.norm(p=1.5, dim=-1, keepdim=True),
    ],
)
def test_norms_without_singular_values_are_left_to_the_device(compute):
    class Measured(nn.Module):
        def forward(self, x):
            return compute(x)

    x = make_rows(3, 4, 5)
    ported = porting.to_ipu(Measured(), device="sim")
    value = ported.inference()(x)

    torch.testing.assert_close(value, compute(x))
    assert "C025" not in {finding.code for finding in ported.report().findings}


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_larger_matrices_have_no_closed_form(ord):
    class Measured(nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_norm(x, ord)

    assert measure_matrices(make_rows(3, 3), ord) is Fallback
    with pytest.raises(porting.PortingError, match="C017"):
        porting.to_ipu(Measured(), device="sim").inference()(make_rows(3, 3))


def test_what_torch_refuses_is_left_to_torch():
    assert measure_pairs(make_rows(3)) is Fallback
    assert measure_pairs(make_rows(3, 2), -1.0) is Fallback
    assert measure_matrices(make_rows(2, 2), 2, dim=(0, 0)) is Fallback
    assert measure_matrices(make_rows(2, 2), 2, dim=(0, 2)) is Fallback
    assert measure_matrices(make_rows(2), 2) is Fallback
    assert measure_matrices(torch.ones(2, 2, dtype=torch.int64), 2) is Fallback
