"""Tensors without values are told apart by how they lie in memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.capture.plain_shapes import are_numbers, are_plain, fits, is_contiguous, is_in_order, is_turned, new_tensor

sizes = st.lists(st.integers(1, 3), max_size=4).map(tuple)


@given(sizes, sizes)
def test_a_shape_fits_where_broadcasting_leaves_the_other_as_it_is(inner, outer):
    try:
        stretched = torch.broadcast_shapes(inner, outer) == torch.Size(outer)
    except RuntimeError:
        stretched = False

    assert fits(inner, outer) is stretched


@given(sizes)
def test_a_new_tensor_is_contiguous_and_has_no_memory(shape):
    made = new_tensor(shape, torch.ones(2, dtype=torch.float16))

    assert (made.shape, made.dtype, made.device.type) == (shape, torch.float16, "meta")
    assert is_contiguous(made)
    assert is_in_order(made)


@pytest.mark.parametrize(
    ("tensor", "contiguous", "in_order"),
    [
        (torch.ones(4, 6), True, True),
        (torch.ones(4, 6)[:, :3], False, True),
        (torch.ones(4, 6).t(), False, False),
        (torch.ones(4, 1).expand(4, 6), False, False),
        (torch.ones(0, 6), False, False),
    ],
)
def test_a_cut_keeps_the_order_of_memory_and_a_turn_does_not(tensor, contiguous, in_order):
    assert (is_contiguous(tensor), is_in_order(tensor)) == (contiguous, in_order)


def test_a_turned_tensor_has_no_gaps_and_no_sizes_without_an_order():
    assert is_turned(torch.ones(4, 6).t())
    assert is_turned(torch.ones(4, 6))
    assert not is_turned(torch.ones(4, 6)[:, :3])
    assert not is_turned(torch.ones(4, 1).t())
    assert not is_turned(torch.ones(4).expand(2, 4))


def test_plain_tensors_have_one_floating_point_type():
    half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)

    assert are_plain(single, None, single)
    assert not are_plain(single, half)
    assert not are_plain(torch.ones(2, dtype=torch.int64))
    assert not are_plain(single, 1.0)


def test_truth_values_are_no_numbers():
    assert are_numbers(1, 0.5, None)
    assert not are_numbers(1, True)
