"""Tensors without values are told apart by how they lie in memory."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.capture.plain_shapes import (
    UnknownShape,
    are_floats,
    are_numbers,
    are_plain,
    combine,
    fits,
    is_contiguous,
    is_in_order,
    is_mask,
    is_turned,
    new_tensor,
)

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


@pytest.mark.parametrize(("dtype", "is_one"), [(torch.bool, True), (torch.uint8, True), (torch.int64, False)])
def test_truth_values_and_bytes_are_a_mask(dtype, is_one):
    assert is_mask(torch.ones(2, dtype=dtype)) is is_one
    assert not is_mask(True)


def test_plain_tensors_have_one_floating_point_type():
    half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)

    assert are_plain(single, None, single)
    assert not are_plain(single, half)
    assert not are_plain(torch.ones(2, dtype=torch.int64))
    assert not are_plain(single, 1.0)


def test_truth_values_are_no_numbers():
    assert are_numbers(1, 0.5, None)
    assert not are_numbers(1, True)


@st.composite
def operands(draw):
    """Give two tensors that fit one another, turned, with gaps, and stretched along some dimensions."""
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    found = []
    for _number in range(2):
        own = [1 if draw(st.integers(0, 4)) == 0 else size for size in shape[draw(st.integers(0, len(shape))) :]]
        order = draw(st.permutations(range(len(own))))
        memory = torch.ones([own[dim] * draw(st.sampled_from([1, 1, 2])) for dim in order])
        for place, dim in enumerate(order):
            memory = memory.narrow(place, 0, own[dim])
        found.append(memory.permute([order.index(dim) for dim in range(len(own))]))
    return found


@given(operands())
def test_what_is_done_element_by_element_is_laid_out_as_torch_does(tensors):
    one, other = (torch.empty_strided(tensor.shape, tensor.stride(), device="meta") for tensor in tensors)

    for made, whole in ((partial(combine, one, one), tensors[0].exp()), (partial(combine, one, other), sum(tensors))):
        try:
            result = made()
        except UnknownShape:
            assert any(1 in tensor.shape and not tensor.is_contiguous() for tensor in tensors)
        else:
            assert (result.shape, result.stride()) == (whole.shape, whole.stride())


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool])
def test_what_is_done_element_by_element_has_the_type_of_the_first_unless_another_is_asked_for(dtype):
    one, other = (torch.empty(2, dtype=kind, device="meta") for kind in (dtype, torch.float32))

    assert combine(one, other).dtype == dtype
    assert combine(one, other, torch.bfloat16).dtype == torch.bfloat16


def test_shapes_that_do_not_fit_are_torchs_error():
    with pytest.raises(RuntimeError, match="must match"):
        combine(torch.empty(2, 3, device="meta"), torch.empty(2, 2, device="meta"))


def test_floats_are_of_one_type_and_not_empty():
    assert are_floats(torch.ones(2), torch.ones(3, 2).t())
    assert not are_floats(torch.ones(2), torch.ones(2, dtype=torch.float16))
    assert not are_floats(torch.ones(0))
    assert not are_floats(torch.ones(2, dtype=torch.int64))
