"""Inputs that forward writes into are updated in the caller's tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def executor_of(poptorch, forward, options=None):
    model = nn.Module()
    model.forward = forward
    return poptorch.inferenceModel(model, options)


def add_one(x):
    x += 1


WRITES = {
    "+=": add_one,
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(x + 1),
    "fill_": lambda x: x.fill_(2),
    "masked_fill_": lambda x: x.masked_fill_(x == 1, 2),
    "chained": lambda x: x.mul_(4).sub_(2),
    "slice": lambda x: x[0:2].add_(1),
    "view": lambda x: x.view(-1).add_(1),
    "reshape": lambda x: x.reshape(2, 1).add_(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_callers_tensor_is_updated(poptorch, write):
    x = torch.ones(2)

    executor_of(poptorch, WRITES[write])(x)

    assert x.tolist() == [2.0, 2.0]


def test_each_call_updates_it_again(poptorch):
    executor, x = executor_of(poptorch, add_one), torch.ones(1)

    results = [executor(x), executor(x)]

    assert results == [None, None]
    assert x.item() == 3.0


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: [x], lambda x: {"k": x}])
def test_tensors_inside_structures_are_updated(poptorch, wrap):
    x = torch.ones(1)
    executor = executor_of(poptorch, lambda s: add_one(next(iter(s.values() if isinstance(s, dict) else s))))

    executor(wrap(x))

    assert x.item() == 2.0


def test_an_item_of_a_list_is_updated(poptorch):
    def forward(xs):
        xs[0] += 4

    x = torch.ones(1)

    executor_of(poptorch, forward)([x])

    assert x.item() == 5.0


def test_integers_are_widened_again(poptorch):
    x = torch.tensor([1])

    executor_of(poptorch, add_one)(x)

    assert (x.dtype, x.item()) == (torch.int64, 2)


def test_other_inputs_are_left_alone(poptorch):
    x, y = torch.ones(1), torch.ones(1)

    executor_of(poptorch, lambda x, y: add_one(x))(x, y)

    assert y.item() == 1.0


def test_the_base_of_a_written_view_is_updated(poptorch):
    x = torch.zeros(2, 2)

    executor_of(poptorch, lambda x: x[1].add_(1))(x)

    assert x.tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_the_original_of_a_converted_input_is_left_alone(poptorch):
    x = torch.zeros(2, 3).t()

    executor_of(poptorch, add_one)(x)

    assert not x.any()


def test_all_micro_batches_are_written_back_in_output_mode_all(poptorch):
    x = torch.arange(4.0)

    executor_of(poptorch, add_one, poptorch.Options().deviceIterations(2))(x)

    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_last_micro_batch_is_written_to_every_row_in_output_mode_final(poptorch):
    options = poptorch.Options().deviceIterations(3).outputMode(poptorch.OutputMode.Final)
    x = torch.arange(3.0)

    executor_of(poptorch, add_one, options)(x)

    assert x.tolist() == [3.0, 3.0, 3.0]


def test_outputs_that_share_memory_with_a_written_input_are_apart_from_it(poptorch):
    def forward(x):
        x += 1
        return x

    executor, x = executor_of(poptorch, forward), torch.ones(1)

    first = executor(x)
    executor(x)

    assert first.item() == 2.0


def test_training_updates_inputs_too(poptorch, regression, batch):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = regression

        def forward(self, x, target, count):
            count += 1
            return self.inner(x, target)

    count = torch.zeros(1)

    poptorch.trainingModel(Counts())(*batch, count)

    assert count.item() == 1.0


@pytest.mark.parametrize(
    ("mode", "written"),
    [("All", [10.0, 11.0]), ("Final", [11.0, 11.0]), ("EveryN", [11.0, 11.0]), ("Sum", [21.0, 21.0])],
)
def test_the_write_back_has_the_models_output_mode(poptorch, mode, written):
    options = poptorch.Options().deviceIterations(2).outputMode(getattr(poptorch.OutputMode, mode), 2)
    x = torch.arange(2.0)

    executor_of(poptorch, lambda x: x.add_(10), options)(x)

    assert x.tolist() == written


def test_a_write_back_that_does_not_fit_raises(poptorch):
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.Final)

    with pytest.raises(RuntimeError, match=r"size of tensor a \(6\) must match the size of tensor b \(3\)"):
        executor_of(poptorch, add_one, options)(torch.ones(6))


def test_a_tensor_passed_twice_is_two_inputs_on_the_device(poptorch):
    def forward(x, y):
        x += 1
        return x + y

    x = torch.ones(1)

    result = executor_of(poptorch, forward)(x, x)

    assert result.item() == 3.0
    assert x.item() == 2.0


def test_writes_to_several_inputs_reach_their_own(poptorch):
    def forward(x, others):
        others["b"] *= 3
        x += 1

    x, a, b = torch.ones(1), torch.ones(1), torch.ones(1)

    executor_of(poptorch, forward)(x, {"a": a, "b": b})

    assert (x.item(), a.item(), b.item()) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize("dtype", [torch.half, torch.float64, torch.int32, torch.int64, torch.int16, torch.uint8])
def test_an_input_of_any_type_is_updated_in_its_own(poptorch, dtype):
    x = torch.ones(3).to(dtype)

    executor_of(poptorch, lambda x: x.mul_(2))(x)

    assert x.dtype == dtype
    assert x.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.view(2, 2)[0].add_(1),
        lambda x: x.reshape(2, 2)[:1].mul_(2),
        lambda x: x.unsqueeze(0).chunk(2, 1)[0].fill_(2),
        lambda x: x[0:2].copy_(torch.full((2,), 2.0, device=x.device)),
        lambda x: torch.nn.functional.threshold(x[0:2], 1.5, 2.0, inplace=True),
    ],
)
def test_writes_through_views_of_views_reach_the_input(poptorch, write):
    x = torch.ones(4)

    executor_of(poptorch, write)(x)

    assert x.tolist() == [2.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "turn", [lambda x: x.unsqueeze_(0), lambda x: x.t_(), lambda x: x.squeeze_(1)], ids=["unsqueeze_", "t_", "squeeze_"]
)
def test_an_input_that_is_turned_in_place_keeps_its_shape_at_the_caller(poptorch, turn):
    def forward(x):
        turn(x)
        x += 1
        return x

    x = torch.zeros(2, 1)
    output = executor_of(poptorch, forward)(x)

    assert x.tolist() == [[1.0], [1.0]]
    assert output.shape == turn(torch.zeros(2, 1)).shape
