"""Batches of several shapes, and values that are lost, are found in a loader."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.check.batch_look import cut_micro_batch, find_lost_values, look_at_batches
from porting.options import PortOptions


def batch(rows, value=0):
    return torch.rand(rows, 3), torch.full((rows,), value)


def codes(batches):
    return [finding.code for finding in look_at_batches(batches).find_faults()]


def test_batches_of_one_shape_are_no_finding():
    assert codes([batch(4), batch(4)]) == []


def test_a_short_last_batch_is_found():
    dataset = TensorDataset(torch.rand(10, 3), torch.zeros(10))

    assert codes(DataLoader(dataset, batch_size=4)) == ["B010"]


def test_several_shapes_are_counted():
    (finding,) = look_at_batches([batch(4), batch(5), batch(4), batch(6)]).find_faults()

    assert (finding.code, finding.message[:19]) == ("C042", "4 batches have 3 sh")
    assert finding.notes[0].startswith("2 batches: argument 0: float32[4, 3]")


def test_values_that_are_lost_are_told_once():
    assert codes([batch(4, 2**40), batch(4, 2**41)]) == ["B011"]


def test_a_loader_without_an_end_is_left_after_a_while():
    def endless():
        while True:
            yield batch(2)

    assert look_at_batches(endless()).num_batches == 64


def test_values_of_tensors_without_any_are_not_looked_at():
    assert not find_lost_values(((torch.empty(3, dtype=torch.int64, device="meta"),), {}))


def test_a_batch_is_cut_as_the_options_ask():
    (args, _kwargs), finding = cut_micro_batch((batch(8), {}), PortOptions(accumulation=4))

    assert finding is None
    assert [tensor.shape[0] for tensor in args] == [2, 2]


@pytest.mark.parametrize("rows", [3, 6])
def test_a_batch_that_cannot_be_cut_stays_whole(rows):
    (args, _kwargs), finding = cut_micro_batch((batch(rows), {}), PortOptions(accumulation=4))

    assert finding.code == "B004"
    assert args[0].shape[0] == rows
