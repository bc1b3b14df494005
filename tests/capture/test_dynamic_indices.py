"""Indices whose value only the device knows: positions, and windows of a fixed length."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.diagnostics import CaptureError

X = torch.arange(24.0).reshape(4, 6)


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def on_device(poptorch, function, *inputs):
    return poptorch.inferenceModel(Called(function))(*inputs)


def set_to(index_of, value):
    def write(x, i):
        x = x.clone()
        x[index_of(i)] = value
        return x

    return write


def write_masked(x, i):
    x = x.clone()
    x[i, x[0] > 2] = 5.0
    return x


READS = {
    "a row": lambda x, i: x[i],
    "a column": lambda x, i: x[:, i],
    "a column of the last dimension": lambda x, i: x[..., i],
    "an element": lambda x, i: x[i, i],
    "a row with a new axis": lambda x, i: x[None, i],
    "part of a row": lambda x, i: x[i, 1:4],
    "a row by an integer and a tensor": lambda x, i: x[2, i],
    "two rows": lambda x, i: x[i : i + 2],
    "two rows, from below": lambda x, i: x[i - 1 : i + 1],
    "one row": lambda x, i: x[i : i + 1],
    "three columns": lambda x, i: x[:, i : i + 3],
    "three columns, of every other": lambda x, i: x[:, i : i + 3 : 2],
    "a window of each kind": lambda x, i: x[i : i + 2, i + 1 : i + 3],
}

WRITES = {
    "a row": set_to(lambda i: i, 5.0),
    "a column": set_to(lambda i: (slice(None), i), 5.0),
    "part of a row": set_to(lambda i: (i, slice(1, 3)), 5.0),
    "an element": set_to(lambda i: (i, i + 1), 5.0),
    "an element of a known row": set_to(lambda i: (2, i), 5.0),
    "two rows": set_to(lambda i: slice(i, i + 2), 5.0),
    "columns behind an ellipsis": set_to(lambda i: (..., slice(i, i + 2)), 5.0),
    "a window of each kind": set_to(lambda i: (slice(i, i + 2), slice(i, i + 2)), 5.0),
    "different values in a window of each kind": set_to(lambda i: (slice(i, i + 2), slice(i, i + 3)), -X[:2, :3]),
    "a window and a list": set_to(lambda i: (slice(i, i + 2), [0, 3]), -X[:2, :2]),
    "different values in a row": set_to(lambda i: i, -X[0]),
    "different values in a column": set_to(lambda i: (slice(None), i), -X[:, 0]),
    "every other of a window": set_to(lambda i: (slice(None), slice(i, i + 3, 2)), -X[:, :2]),
    "a row with a new axis": set_to(lambda i: (None, i), -X[:1]),
    "masked elements of a row": write_masked,
}
BLOCK_WRITES = {
    "a position, everything, a window": lambda i: (i, slice(None), slice(i, i + 2)),
    "a window, everything, a position": lambda i: (slice(i, i + 2), slice(None), i),
    "a window in the middle": lambda i: (1, slice(i, i + 2)),
}


@pytest.mark.parametrize("index", [1, 2])
@pytest.mark.parametrize("name", READS)
def test_reading_at_a_position_gives_what_a_number_gives(poptorch, name, index):
    result = on_device(poptorch, READS[name], X, torch.tensor(index))

    assert result.tolist() == READS[name](X, index).tolist()


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("name", WRITES)
def test_writing_at_a_position_does_what_a_number_does(poptorch, name, index):
    result = on_device(poptorch, WRITES[name], X, torch.tensor(index))

    assert result.tolist() == WRITES[name](X, index).tolist()


@pytest.mark.parametrize("name", BLOCK_WRITES)
def test_values_keep_their_places_in_three_dimensions(poptorch, name):
    block, index_of = torch.zeros(4, 4, 4), BLOCK_WRITES[name]
    values = torch.arange(1.0, 1 + block[index_of(1)].numel()).view_as(block[index_of(1)])
    write = set_to(index_of, values)

    result = on_device(poptorch, write, block, torch.tensor(1))

    assert result.tolist() == write(block, 1).tolist()


def test_a_mask_beside_a_position_and_a_number_selects_what_it_does_in_eager(poptorch):
    def write(x, i):
        x = x.clone()
        x[1, i, x[0, 0] > 2] = 5.0
        x[i, 1:, x[0, 0] > 2] = 6.0
        return x

    block = torch.arange(48.0).view(3, 4, 4)

    result = on_device(poptorch, write, block, torch.tensor(2))

    assert result.tolist() == write(block, 2).tolist()


def test_a_position_from_the_end_counts_backwards(poptorch):
    assert torch.equal(on_device(poptorch, lambda x, i: x[i], X, torch.tensor(-1)), X[-1])


def test_windows_wrap_around_the_end(poptorch):
    result = on_device(poptorch, lambda x, i: x[i : i + 2], X, torch.tensor(3))

    assert torch.equal(result, X[[3, 0]])


def test_a_window_may_start_at_an_input_of_one_element(poptorch):
    assert torch.equal(on_device(poptorch, lambda x, i: x[i : i + 2], X, torch.tensor([1])), X[1:3])


def test_gradients_reach_what_was_read(poptorch):
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(X.clone())

        def forward(self, i):
            return poptorch.identity_loss(self.weight[i].sum() + self.weight[i : i + 2].sum(), "none")

    model = Loss()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor(torch.tensor(1))
    executor.copyWeightsToHost()

    assert (X - model.weight.detach())[:, 0].tolist() == [0.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda x, i: x[i : i + 3], r"The size of the slice \(3\) must be a factor of the slicing dimension \(4\)\."),
        (lambda x, i: x[i:i], "The start and end of a slice must be different"),
        (lambda x, i: x[i + 1 : i], "Taking a slice of a tensor with the end less than the start is not supported"),
    ],
)
def test_lengths_that_the_device_lacks_are_refused(poptorch, read, message):
    with pytest.raises(poptorch.Error, match=message):
        on_device(poptorch, read, X, torch.tensor(1))


@pytest.mark.parametrize("read", [lambda x, i: x[i:], lambda x, i: x[: i + 1], lambda x, i: x[i : i * 2]])
def test_windows_of_unknown_length_are_host_reads(trace, read):
    with pytest.raises(CaptureError) as caught:
        trace(lambda _weight, x, i: read(x, i), X, torch.tensor(1))

    assert caught.value.finding.code == "C001"
    assert "x[i : i + n]" in caught.value.finding.help[0]
