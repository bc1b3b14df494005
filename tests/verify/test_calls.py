"""Batches of a proof belong to nobody: what a run does to its copies reaches no other run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.verify.calls import Calls, UnequalBatchesError, are_same_tensors, join_rows


def make_calls(count=3):
    return Calls([((torch.full((2, 2), float(number)),), {"scale": torch.tensor(1.0)}) for number in range(count)])


def test_what_is_done_to_a_copy_stays_with_it():
    calls = make_calls()

    for args, kwargs in calls:
        args[0].zero_()
        kwargs["scale"].add_(1)

    assert [args[0][0, 0].item() for args, _kwargs in calls] == [0.0, 1.0, 2.0]
    assert calls[-1][1]["scale"].item() == 1.0


def test_the_first_ones_and_repeated_ones_are_calls_too():
    calls = make_calls()

    assert [args[0][0, 0].item() for args, _kwargs in calls[:2]] == [0.0, 1.0]
    assert [args[0][0, 0].item() for args, _kwargs in calls.repeat(5)] == [0.0, 1.0, 2.0, 0.0, 1.0]


def test_what_was_changed_is_listed_by_its_place():
    calls = make_calls()
    taken = calls[1]
    taken[1]["scale"].mul_(3)

    assert {name: value.item() for name, value in calls.collect_changed(1, taken).items()} == {
        "tensor 1 of the batch": 3.0
    }
    assert calls.collect_changed(1, calls[1]) == {}


def test_what_was_one_tensor_is_one_in_the_copy():
    x = torch.ones(2)

    first, second = Calls([((x, x), {})])[0][0]

    assert first is second
    assert first is not x


def test_numbers_that_are_none_are_the_same_as_themselves_and_types_count():
    assert are_same_tensors(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    assert not are_same_tensors(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    assert not are_same_tensors(torch.ones(2), torch.ones(1))


@given(st.lists(st.integers(1, 7), max_size=8), st.integers(1, 9))
def test_all_rows_come_once_in_order_but_for_a_rest_that_fills_no_call(sizes, num_rows):
    rows = torch.arange(sum(sizes))
    batches = [{"x": part, "scale": torch.tensor(2.0)} for part in rows.split(sizes)] if sizes else []

    joined = list(join_rows(batches, num_rows))

    assert all(len(batch["x"]) == num_rows and batch["scale"].item() == 2.0 for batch in joined)
    found = torch.cat([batch["x"] for batch in joined]) if joined else rows[:0]
    assert torch.equal(found, rows[: sum(sizes) // num_rows * num_rows])


@pytest.mark.parametrize(
    ("second", "words"), [((torch.ones(2, 4),), r"\[2, 3\] and \[2, 4\]"), ((torch.ones(2, 3),) * 2, "1, 2 tensors")]
)
def test_batches_of_other_shapes_cannot_be_joined(second, words):
    with pytest.raises(UnequalBatchesError, match=words):
        list(join_rows([(torch.ones(2, 3),), second], 4))
