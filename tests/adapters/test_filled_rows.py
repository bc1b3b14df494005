"""A small batch is filled with copies of its last row, and what it returns is cut again."""

from __future__ import annotations

import torch

from porting.adapters.filled_rows import count_rows, cut_rows, fill_rows


def test_what_is_filled_and_cut_is_what_it_was():
    batch = {"x": torch.arange(6).view(3, 2), "scale": torch.tensor(2.0), "y": torch.arange(3)}

    filled = fill_rows(batch, 5)

    assert count_rows(filled) == 5
    assert filled["y"].tolist() == [0, 1, 2, 2, 2]
    torch.testing.assert_close(cut_rows(filled, 3), batch)


def test_a_batch_that_is_full_stays_the_same_object():
    batch = [torch.ones(4)]

    assert fill_rows(batch, 4) is batch


def test_a_batch_whose_tensors_have_other_rows_stays_as_it_is():
    batch = [torch.ones(4), torch.ones(3)]

    assert fill_rows(batch, 8) is batch
