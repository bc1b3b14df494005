"""Counts of comparisons are those of torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting import Fallback
from porting.remedies.counted import count_bins, find_members, find_positions
from tests.remedies.parity import assert_same_values, assert_trains_like_plain


def make_values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def make_sorted(*shape):
    """Make sorted values, some of them twice."""
    return torch.randint(0, 6, shape, generator=torch.Generator().manual_seed(5)).sort(-1).values.to(torch.float32)


ARGUMENTS = [{}, {"right": True}, {"side": "left"}, {"side": "right"}, {"out_int32": True}]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize(
    ("sequence", "values"), [((5,), (3, 4)), ((5,), ()), ((1,), (2,)), ((2, 5), (2, 3)), ((2, 3, 5), (2, 3, 1))]
)
def test_positions_are_those_of_torch(sequence, values, arguments):
    wanted = make_values(*values).abs().mul(2).round()

    assert_same_values(
        lambda *args: torch.searchsorted(*args, **arguments),
        lambda *args: find_positions(*args, **arguments),
        make_sorted(*sequence),
        wanted,
    )


@pytest.mark.parametrize("right", [True, False])
def test_a_number_and_what_is_none_have_a_position(right):
    sequence = torch.tensor([1.0, 2.0, 2.0, torch.inf])

    for value in (2.0, 9.0, torch.tensor([torch.nan, torch.inf, -torch.inf])):
        assert_same_values(
            lambda *args: torch.searchsorted(*args, right=right),
            lambda *args: find_positions(*args, right=right),
            sequence,
            value,
        )
    assert int(find_positions(sequence, self=2.0)) == 1


def test_a_sorter_orders_the_sequence():
    sequence, values = make_values(3, 6), make_values(3, 2)
    order = sequence.argsort(-1)

    assert find_positions(sequence, values, sorter=order).equal(torch.searchsorted(sequence, values, sorter=order))


@pytest.mark.parametrize("invert", [True, False])
def test_members_are_those_of_torch(invert):
    elements, others = torch.arange(12).reshape(3, 4), torch.tensor([[3, 7], [9, 30]])

    for args in ((elements, others), (elements, 5), (9, others), (elements.float(), others)):
        assert_same_values(
            lambda *args: torch.isin(*args, invert=invert), lambda *args: find_members(*args, invert=invert), *args
        )
    assert find_members(element=9, test_elements=others, assume_unique=True)
    assert find_members(elements, test_element=3).equal(elements == 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "arguments", [(), (4,), (5, -1, 1), (3, 0.25, 0.5), (4, 2, 2), (1, -3, 3), (7, 50, 60)], ids=str
)
def test_bins_are_those_of_torch(arguments, dtype):
    assert_same_values(torch.histc, count_bins, make_values(4, 25).to(dtype), *arguments)


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ([2.0, 2.0, 2.0], (4,)),
        ([0.0, 0.25, 0.5, 0.75, 1.0], (4, 0, 1)),
        ([torch.nan, 0.5, torch.inf, -torch.inf], (2, 0, 1)),
    ],
    ids=["equal values", "edges", "no numbers"],
)
def test_edges_and_values_outside_count_as_in_torch(values, arguments):
    assert_same_values(torch.histc, count_bins, torch.tensor(values), *arguments)


def test_halves_are_counted_as_floats():
    x = make_values(4, 25).to(torch.float16)

    assert_same_values(lambda x: torch.histc(x.float(), 9).half(), lambda x: count_bins(x, 9), x)


@pytest.mark.parametrize("num_experts", [2, 3, 8, 64])
def test_whole_numbers_are_counted_as_on_gpus(num_experts):
    experts = torch.randint(0, num_experts, (200,), generator=torch.Generator().manual_seed(6), dtype=torch.int32)

    counts = count_bins(experts, num_experts, 0, num_experts - 1)

    assert counts.dtype == torch.int32
    assert counts.tolist() == torch.bincount(experts, minlength=num_experts).tolist()


COMPUTED_BY_OTHERS = {
    "torch.searchsorted": lambda x: x * torch.searchsorted(x.detach().sort(-1).values, x.detach(), right=True),
    "torch.searchsorted of a number": lambda x: x * torch.searchsorted(x[0].detach().sort().values, 0.1),
    "torch.isin": lambda x: x * torch.isin(x.detach().argsort(-1), x.detach().argmax(-1)).to(x.dtype),
    "torch.isin of a number": lambda x: x * torch.isin(x.detach().argsort(-1), 2, invert=True).to(x.dtype),
    "torch.histc": lambda x: x[0, :1] * torch.histc(x.detach(), bins=5, min=-1, max=1),
    "torch.Tensor.histc": lambda x: x[0, :1] * x.detach().histc(4),
}


@pytest.mark.parametrize("name", COMPUTED_BY_OTHERS)
def test_a_model_trains_like_plain(name):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return COMPUTED_BY_OTHERS[name](self.layer(x)).pow(2).mean()

    assert_trains_like_plain(Counting, make_values(4, 6))


def test_a_table_of_a_model_is_searched():
    class Bins(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.tensor([-1.0, 0.0, 1.0]))

        def forward(self, x):
            return torch.searchsorted(self.edges, x)

    x = make_values(3, 4)

    assert porting.to_ipu(Bins(), device="sim").inference()(x).tolist() == Bins()(x).tolist()


def test_what_torch_refuses_is_left_to_torch():
    x = make_values(4)

    assert find_positions(x, x, right=True, side="left") is Fallback
    assert find_positions(make_values(2, 3), make_values(3, 3)) is Fallback
    assert find_positions(x, x, out=x) is Fallback
    assert count_bins(x, 0) is Fallback
    assert count_bins(x, 2, 1, 0) is Fallback
    assert count_bins(x > 0, 2) is Fallback
    assert find_members(x, x[:0]) is Fallback
