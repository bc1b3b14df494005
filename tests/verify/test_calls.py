"""Batches of a proof belong to nobody: what a run does to its copies reaches no other run."""

from __future__ import annotations

import torch

from porting.verify.calls import Calls, are_same_tensors


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

    assert {name: value.item() for name, value in calls.list_changed(1, taken).items()} == {
        "tensor 1 of the batch": 3.0
    }
    assert calls.list_changed(1, calls[1]) == {}


def test_what_was_one_tensor_is_one_in_the_copy():
    x = torch.ones(2)

    first, second = Calls([((x, x), {})])[0][0]

    assert first is second
    assert first is not x


def test_numbers_that_are_none_are_the_same_as_themselves_and_types_count():
    assert are_same_tensors(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]))
    assert not are_same_tensors(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    assert not are_same_tensors(torch.ones(2), torch.ones(1))
