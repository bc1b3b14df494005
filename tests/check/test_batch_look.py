"""Batches of several shapes, and values that are lost, are found in a loader."""

from __future__ import annotations

import pytest
import torch

from porting.check import batch_look
from porting.check.batch_look import BatchLook, cut_micro_batch, is_loader, list_lost_values, zero_labels
from porting.options import PortOptions


def batch(rows, value=0):
    return torch.rand(rows, 3), torch.full((rows,), value)


def look_at(batches):
    look = BatchLook()
    for one in batches:
        look.add(one)
    return look


def test_values_that_are_lost_are_told_once():
    look = look_at([batch(4), batch(4, 2**40), batch(4, 2**41)])

    assert [finding.code for finding in look.findings] == ["B011"]


def test_batches_of_other_shapes_are_kept_first():
    look = look_at([batch(4), batch(4), batch(2), batch(3)])

    assert [args[0].shape[0] for args, _kwargs in look.kept] == [2, 4, 4]


@pytest.mark.parametrize(("num_batches", "named"), [(3, "batch 3"), (5, "batches 3 to 5")])
def test_batches_whose_numbers_need_too_much_memory_are_named(monkeypatch, num_batches, named):
    monkeypatch.setattr(batch_look, "_MOST_BYTES", 2**20)
    look = BatchLook()

    for _ in range(num_batches):
        look.add((torch.zeros(2, 4), torch.zeros(2**16, dtype=torch.long)))

    told = f"labels and indices of {named} of the loader were not looked at"
    assert look.facts == [f"{told}: the whole numbers of those before need 1 MiB"]


def test_of_batches_that_need_little_memory_none_is_named():
    look = BatchLook()
    look.add((torch.zeros(2, 4), torch.tensor([0, 1])))

    assert look.facts == []


def test_values_of_tensors_without_any_are_not_looked_at():
    assert not list_lost_values(((torch.empty(3, dtype=torch.int64, device="meta"),), {}))


def test_a_batch_is_cut_as_the_options_ask():
    (args, _kwargs), finding = cut_micro_batch((batch(8), {}), PortOptions(accumulation=4))

    assert finding is None
    assert [tensor.shape[0] for tensor in args] == [2, 2]


@pytest.mark.parametrize("rows", [3, 6])
def test_a_batch_that_cannot_be_cut_stays_whole(rows):
    (args, _kwargs), finding = cut_micro_batch((batch(rows), {}), PortOptions(accumulation=4))

    assert finding.code == "B004"
    assert args[0].shape[0] == rows


@pytest.mark.parametrize(
    "batch", [torch.ones(2), (torch.ones(2), torch.ones(2)), [torch.ones(2)], {"x": torch.ones(2)}, {}, None, "text"]
)
def test_a_batch_is_no_loader(batch):
    assert not is_loader(batch)


@pytest.mark.parametrize(
    "loader", [torch.utils.data.DataLoader([1, 2]), iter([torch.ones(2)]), (batch for batch in ())]
)
def test_what_gives_batches_is_a_loader(loader):
    assert is_loader(loader)


def test_labels_are_the_last_argument_and_those_called_so():
    args, kwargs = zero_labels(
        ((torch.ones(2), torch.tensor([7])), {"labels": {"a": torch.ones(1)}, "x": torch.ones(1)})
    )

    assert [float(tensor.sum()) for tensor in (*args, kwargs["labels"]["a"], kwargs["x"])] == [2, 0, 0, 1]
