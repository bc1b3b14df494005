"""Which outputs of a call come back, and in what shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn

ROWS = torch.arange(1.0, 13.0)


class Rows(nn.Module):
    """Returns its rows, their sum, and values that are no tensors of the device."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        loss = (self.weight * x).sum()
        return x * 1, torch.ops.poptorch.identity_loss(loss, 2), "text", 7, None


def call(poptorch, mode, period=None, *, iterations=1, accumulation=1, replicas=1):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.outputMode(getattr(poptorch.OutputMode, mode), period)
    options.Training.gradientAccumulation(accumulation)
    model = Rows()
    return poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.0))(ROWS)


@pytest.mark.parametrize(
    ("sizes", "sums"),
    [
        ({"iterations": 2}, [21.0, 57.0]),
        ({"accumulation": 3}, [10.0, 26.0, 42.0]),
        ({"replicas": 2}, [21.0, 57.0]),
        ({"iterations": 2, "accumulation": 2}, [6.0, 15.0, 24.0, 33.0]),
    ],
)
def test_all_returns_every_micro_batch_in_order(poptorch, sizes, sums):
    rows, losses, *_ = call(poptorch, "All", **sizes)

    assert torch.equal(rows, ROWS)
    assert losses.tolist() == sums


@pytest.mark.parametrize(
    ("sizes", "rows", "losses"),
    [
        ({}, [*range(1, 13)], 78.0),
        ({"iterations": 3}, [9, 10, 11, 12], 42.0),
        ({"accumulation": 3}, [9, 10, 11, 12], 42.0),
        ({"replicas": 2}, [*range(1, 13)], [21.0, 57.0]),
        ({"iterations": 3, "replicas": 2}, [9, 10, 11, 12], [19.0, 23.0]),
    ],
)
def test_final_returns_the_last_micro_batch_of_each_replica(poptorch, sizes, rows, losses):
    result = call(poptorch, "Final", **sizes)

    assert result[0].tolist() == rows
    assert result[1].tolist() == losses


def test_default_is_final_in_training(poptorch):
    assert call(poptorch, "Default", iterations=3)[1].tolist() == 42.0


@pytest.mark.parametrize(
    ("sizes", "period", "losses"),
    [
        ({"iterations": 4}, 2, [15.0, 33.0]),
        ({"iterations": 2, "accumulation": 2}, 2, [15.0, 33.0]),
        ({"iterations": 4}, 4, 33.0),
        ({"iterations": 2, "replicas": 2}, 2, [24.0, 33.0]),
    ],
)
def test_every_n_returns_each_nth_micro_batch_of_a_replica(poptorch, sizes, period, losses):
    assert call(poptorch, "EveryN", period, **sizes)[1].tolist() == losses


@pytest.mark.parametrize(
    ("sizes", "period", "losses"),
    [
        ({"iterations": 4}, 3, 24.0),
        ({"iterations": 6}, 4, 15.0),
        ({"iterations": 6}, 5, 19.0),
        ({"iterations": 3, "accumulation": 2}, 4, 15.0),
    ],
)
def test_every_n_divides_without_remainder(poptorch, sizes, period, losses):
    assert call(poptorch, "EveryN", period, **sizes)[1].tolist() == losses


def test_every_n_with_a_period_beyond_the_call_returns_one_micro_batch_of_unwritten_memory(poptorch):
    rows, loss, *_ = call(poptorch, "EveryN", 8, iterations=4)

    assert rows.shape == (3,)
    assert loss.shape == ()


def test_every_n_with_replicas_returns_as_many_rows_as_the_integer_division_says(poptorch):
    rows, losses, *_ = call(poptorch, "EveryN", 2, iterations=3, replicas=2)

    assert rows.shape == (3 * 2,)
    assert losses[:2].tolist() == [11.0, 15.0]


@pytest.mark.parametrize(
    ("sizes", "rows", "losses"),
    [
        ({"iterations": 3}, [15, 18, 21, 24], 78.0),
        ({"iterations": 3, "replicas": 2}, [15, 18, 21, 24], [33.0, 45.0]),
    ],
)
def test_sum_adds_micro_batches_up_and_not_the_rows_in_them(poptorch, sizes, rows, losses):
    result = call(poptorch, "Sum", **sizes)

    assert result[0].tolist() == rows
    assert result[1].tolist() == losses


def test_sum_of_integers_stays_in_the_devices_type(poptorch):
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.Sum)

    result = poptorch.inferenceModel(nn.Identity(), options)(torch.tensor([100, 100], dtype=torch.int8))

    assert (result.dtype, result.item()) == (torch.int8, -56)


@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
def test_values_that_are_no_tensors_come_back_as_they_are(poptorch, mode):
    assert call(poptorch, mode, iterations=3)[2:] == ("text", 7, None)


def test_inference_returns_all_rows_by_default(poptorch):
    executor = poptorch.inferenceModel(nn.Identity(), poptorch.Options().deviceIterations(10))
    x = torch.arange(300.0).reshape(10, 1, 5, 6)

    assert torch.equal(executor(x), x)


def test_a_single_micro_batch_keeps_its_shape(poptorch):
    assert call(poptorch, "All")[1].shape == ()


def test_host_constants_are_returned_once(poptorch):
    constant = torch.ones(1)
    model = nn.Module()
    model.forward = lambda x: (x, constant)
    executor = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(3))

    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        result = executor(torch.ones(3))

    assert result[1] is constant


@pytest.mark.parametrize("mode", ["All", "EveryN", "Final", "Sum"])
def test_constants_of_the_graph_are_returned_once(poptorch, mode):
    model = nn.Module()
    model.forward = lambda x: (x * 1, torch.ones(2, device=x.device) * 3, torch.full((2,), x.shape[0], device=x.device))
    options = poptorch.Options().deviceIterations(4).outputMode(getattr(poptorch.OutputMode, mode), 2)

    _rows, threes, sizes = poptorch.inferenceModel(model, options)(torch.ones(8))

    assert threes.tolist() == [3.0, 3.0]
    assert sizes.tolist() == [2, 2]


def test_what_is_computed_from_a_constant_and_an_input_is_no_constant(poptorch):
    def forward(x):
        result = torch.zeros(1, device=x.device)
        result += x
        return result

    model = nn.Module()
    model.forward = forward

    result = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(3))(torch.arange(3.0))

    assert result.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int32, torch.half])
@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
def test_every_type_keeps_its_type_in_every_mode(poptorch, mode, dtype):
    options = poptorch.Options().deviceIterations(2).outputMode(getattr(poptorch.OutputMode, mode))
    x = torch.tensor([0, 1]).to(dtype)

    result = poptorch.inferenceModel(nn.Identity(), options)(x)

    assert result.dtype == dtype
    assert result.tolist() == {"All": [0, 1], "Final": [1], "Sum": [1]}[mode]
