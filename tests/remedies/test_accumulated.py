"""Results so far along a dimension are those of torch, with their gradients."""

from __future__ import annotations

import functools

import pytest
import torch

from porting import Fallback
from porting.remedies.accumulated import add_exponentials, find_extremes
from tests.remedies.parity import ComputingLayer, assert_same_gradients, assert_same_values, assert_trains_like_plain

SUBSTITUTES = {
    "cummax": functools.partial(find_extremes, is_better=torch.ge, make=torch.return_types.cummax),
    "cummin": functools.partial(find_extremes, is_better=torch.le, make=torch.return_types.cummin),
}


def make_values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 3


@pytest.mark.parametrize(
    ("shape", "dim"), [((7,), 0), ((1,), -1), ((3, 8), 1), ((3, 5), -2), ((2, 3, 4), 1), ((2, 1, 33), -1), ((), 0)]
)
def test_log_sums_and_their_gradients_are_those_of_torch(shape, dim):
    assert_same_gradients(
        functools.partial(torch.logcumsumexp, dim=dim),
        functools.partial(add_exponentials, dim=dim),
        make_values(*shape),
    )


@pytest.mark.parametrize("values", [[500.0, -500.0, 501.0], [-torch.inf, -torch.inf, 1.0], [0.0, torch.inf, 1.0]])
def test_log_sums_stay_finite_where_those_of_torch_do(values):
    assert_same_values(torch.logcumsumexp, add_exponentials, torch.tensor(values), 0)


def test_nothing_added_has_no_gradient():
    x = torch.tensor([-torch.inf, -torch.inf, 1.0, 2.0], requires_grad=True)

    add_exponentials(x, 0)[2:].exp().sum().backward()

    assert x.grad.tolist() == pytest.approx([0.0, 0.0, 2 * 2.7182818, 7.3890561])


@pytest.mark.parametrize("name", SUBSTITUTES)
@pytest.mark.parametrize(
    ("shape", "dim"), [((7,), 0), ((1,), -1), ((3, 8), 1), ((3, 5), -2), ((2, 3, 4), 1), ((2, 1, 33), -1), ((), 0)]
)
def test_extremes_and_their_gradients_are_those_of_torch(name, shape, dim):
    operator, x = getattr(torch, name), make_values(*shape)

    assert_same_gradients(lambda x: operator(x, dim)[0], lambda x: SUBSTITUTES[name](x, dim)[0], x)
    assert SUBSTITUTES[name](x, dim).indices.equal(operator(x, dim).indices)


@pytest.mark.parametrize("name", SUBSTITUTES)
@pytest.mark.parametrize("values", [[1, 3, 3, 2, 1, 0, 1], [1.0, torch.nan, 3.0, torch.nan, 0.0], [True, False, True]])
def test_of_equal_extremes_the_last_is_found(name, values):
    x = torch.tensor(values)

    values, indices = SUBSTITUTES[name](x, 0)

    torch.testing.assert_close(values, getattr(torch, name)(x, 0).values, equal_nan=True)
    assert indices.equal(getattr(torch, name)(x, 0).indices)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.logcumsumexp(x, 1),
        lambda x: x.logcumsumexp(dim=-1),
        lambda x: torch.cummax(x, dim=1).values * 2,
        lambda x: x.cummin(0)[0],
    ],
    ids=["logcumsumexp", "logcumsumexp of the last", "cummax", "cummin"],
)
def test_a_model_trains_like_plain(compute):
    assert_trains_like_plain(lambda: ComputingLayer(compute), make_values(4, 6))


def test_a_result_to_write_to_and_a_dimension_that_is_not_there_are_left_to_torch():
    x = make_values(3)

    assert add_exponentials(x, 1) is Fallback
    assert SUBSTITUTES["cummin"](x, -2) is Fallback

    assert add_exponentials(x, 0, out=x) is Fallback
    assert SUBSTITUTES["cummax"](x, 0, out=(x, x.long())) is Fallback
