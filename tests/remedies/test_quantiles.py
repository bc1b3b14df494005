"""Quantiles are those of torch, with their gradients."""

from __future__ import annotations

import functools

import pytest
import torch

from porting import Fallback
from porting.remedies.quantiles import find_quantiles
from tests.remedies.parity import ComputingLayer, assert_same_gradients, assert_same_values, assert_trains_like_plain

INTERPOLATIONS = ["linear", "lower", "higher", "midpoint", "nearest"]
find_known_quantiles = functools.partial(find_quantiles, ignores_nan=True)


def make_values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def make_gaps(*shape):
    """Make values a third of which are missing, and all of the first row."""
    values = make_values(*shape)
    values = torch.where(values > 0.5, torch.nan, values)
    values[0] = torch.nan
    return values


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(("shape", "dim"), [((7,), None), ((3, 8), 1), ((3, 5), -2), ((2, 3, 4), None), ((), None)])
def test_a_quantile_and_its_gradient_are_those_of_torch(shape, dim, q, interpolation):
    arguments = {"q": q, "dim": dim, "interpolation": interpolation}

    assert_same_gradients(
        functools.partial(torch.quantile, **arguments),
        functools.partial(find_quantiles, **arguments),
        make_values(*shape),
    )


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("dim", [None, 0, -1])
@pytest.mark.parametrize("q", [0.2, torch.tensor(0.7), torch.tensor([0.1, 0.9, 0.5])], ids=["number", "one", "three"])
def test_shapes_are_those_of_torch(q, dim, keepdim):
    assert_same_values(torch.quantile, find_quantiles, make_values(4, 2, 5), q, dim, keepdim)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_missing_values_count_as_in_torch(dim, interpolation):
    x = make_gaps(4, 6)
    arguments = {"q": torch.tensor([0.25, 0.8]), "dim": dim, "interpolation": interpolation}

    torch.testing.assert_close(find_quantiles(x, **arguments), torch.quantile(x, **arguments), equal_nan=True)
    torch.testing.assert_close(find_known_quantiles(x, **arguments), torch.nanquantile(x, **arguments), equal_nan=True)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.quantile(x, 0.9, dim=1),
        lambda x: x.quantile(0.5, keepdim=True),
        lambda x: torch.nanquantile(x, 0.25, dim=0, interpolation="nearest"),
        lambda x: x - x.nanquantile(0.25, dim=-1, keepdim=True),
    ],
    ids=["quantile", "of all", "nanquantile", "nanquantile of rows"],
)
def test_a_model_trains_like_plain(compute):
    assert_trains_like_plain(lambda: ComputingLayer(compute), make_values(4, 6))


def test_what_torch_refuses_is_left_to_torch():
    x = make_values(4)

    assert find_quantiles(x, 1.5) is Fallback
    assert find_quantiles(x, 0.5, dim=1) is Fallback
    assert find_quantiles(x, 0.5, interpolation="cubic") is Fallback
    assert find_quantiles(x, torch.tensor([0.5], dtype=torch.float64)) is Fallback
    assert find_quantiles(x.to(torch.int64), 0.5) is Fallback
