"""What a program's function may give: a tuple, a dictionary, or an object with names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.cli.program_parts import LoadedProgram, read_parts
from porting.diagnostics import ExecutableError

MODEL, LOSS = nn.Linear(2, 2), nn.MSELoss()
BATCH = torch.arange(6.0).reshape(3, 2), torch.zeros(3, 2)


@pytest.mark.parametrize(
    "made",
    [
        (MODEL, LOSS, BATCH),
        [MODEL, LOSS, BATCH],
        {"model": MODEL, "loss": LOSS, "batch": BATCH},
        SimpleNamespace(model=MODEL, loss=LOSS, batch=BATCH),
    ],
    ids=["tuple", "list", "dictionary", "object"],
)
def test_each_form_has_the_same_parts(made):
    parts = read_parts(made, "train.py:make", None)

    assert (parts.model, parts.loss, parts.rows, parts.name) == (MODEL, LOSS, 3, "train.py:make")


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        ((MODEL, LOSS), "2 values"),
        (MODEL, "a Linear"),
        (None, "a NoneType"),
        ({"model": MODEL}, "without batch"),
        ({"model": MODEL, "batch": BATCH, "optimiser": None}, "did you mean `optimizer`"),
        ((MODEL, 3, BATCH), "the loss"),
        ((MODEL, LOSS, "text"), "the batch"),
    ],
)
def test_what_is_missing_or_wrong_is_named(made, fault):
    with pytest.raises(ExecutableError, match=fault) as caught:
        read_parts(made, "train.py:make", None)

    assert caught.value.code == "E022"


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_batch_is_cut_or_repeated(rows):
    program = LoadedProgram(MODEL, LOSS, (*BATCH, torch.tensor(5)))
    inputs, labels, number = program.batch_of(rows)

    assert (len(inputs), len(labels), number.item()) == (rows, rows, 5)
    assert torch.equal(inputs, BATCH[0][torch.arange(rows) % 3])


def test_the_first_batch_of_a_loader_takes_the_place_of_a_missing_one():
    made = {"model": MODEL, "loss": LOSS, "loader": [BATCH, BATCH]}

    assert read_parts(made, "train.py:make", None, draws_batch=True).rows == 3
