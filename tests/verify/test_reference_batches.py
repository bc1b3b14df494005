"""Batches of a loader are joined to those of calls, row after row, whatever their sizes are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.verify.reference_batches import UnequalBatchesError, join_rows


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
