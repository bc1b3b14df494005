"""What one call of the replay engine does to its state, its inputs, and the world around it."""

from __future__ import annotations

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Body(nn.Module):
    """`forward` is `function(weight, *inputs)`; the parameter has shape (3,)."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def add_up(module, x):
    module.total += x.sum(0)
    return module.total * module.weight


def fail_on_negatives(module, table, indices):
    rows = F.embedding(indices, table)
    return F.l1_loss(rows * module.weight, rows)


# -- results


def test_results_carry_no_gradient(device):
    x = torch.ones(2, 3)
    on_device = device(nn.Linear(3, 3), x, x, loss=F.mse_loss)

    output, loss = on_device.run(x, x)

    assert (output.requires_grad, loss.requires_grad) == (False, False)
    assert (output.grad_fn, loss.grad_fn) == (None, None)


@pytest.mark.parametrize(
    "function",
    [
        lambda module, x: module.weight,
        lambda module, x: module.weight[1:],
        lambda module, x: module.total.view(3, 1),
        lambda module, x: x,
        lambda module, x: x[0],
        lambda module, x: torch.tensor([1.0, 2.0, 3.0], device=x.device),
    ],
    ids=["parameter", "view of a parameter", "view of a buffer", "input", "view of an input", "constant"],
)
def test_a_result_has_memory_of_its_own(device, function):
    x = torch.arange(6.0).reshape(2, 3)
    on_device = device(Body(function), x, mode="inference")

    (first,) = on_device.run(x)
    expected = first.clone()
    first.fill_(-1.0)
    (second,) = on_device.run(x)

    assert torch.equal(second, expected)
    assert torch.equal(x, torch.arange(6.0).reshape(2, 3))


def test_a_weight_is_returned_as_it_was_at_that_moment(device):
    x = torch.ones(3)
    on_device = device(Body(lambda module, x: (module.weight, F.mse_loss(module.weight, x))), x)

    before, _loss = on_device.run(x)

    assert before.tolist() == [1.0, 2.0, 3.0]


def test_nothing_returned_is_an_empty_list(device):
    on_device = device(Body(lambda module, x: None), torch.ones(3), mode="inference")

    assert on_device.run(torch.ones(3)) == []


# -- inputs


def test_inputs_stay_as_they_are(device):
    x = torch.ones(2, 3)
    on_device = device(Body(lambda module, x: x.mul_(2) + module.weight), x, mode="inference")

    on_device.run(x)

    assert torch.equal(x, torch.ones(2, 3))


def test_inputs_that_are_written_to_come_back_after_the_outputs(device):
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    on_device = device(Body(lambda module, x, y: (y[0].add_(x[1]), x * 3)[1]), x, y, mode="inference")

    product, written = on_device.run(x, y)

    assert torch.equal(product, x * 3)
    assert written.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_each_micro_batch_takes_its_rows(device):
    rows = torch.arange(12.0).reshape(4, 3)
    on_device = device(Body(lambda module, x: x.sum(1)), rows[:1], mode="inference", replicas=2)

    (sums,) = on_device.run(rows, iterations=2, replicas=2, output_mode="all")

    assert sums.tolist() == rows.sum(1).tolist()


def test_an_input_without_rows_is_the_same_for_all(device):
    rows, factor = torch.ones(4, 3), torch.tensor(2.0)
    on_device = device(Body(lambda module, x, f: x * f), rows[:2], factor, mode="inference")

    (product,) = on_device.run(rows, factor, iterations=2, output_mode="all")

    assert torch.equal(product, rows * 2)


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_inputs_may_be_made_in_inference_mode(device, mode):
    with torch.inference_mode():
        x = torch.ones(2, 3)
    on_device = device(nn.Linear(3, 3), x, x, loss=F.mse_loss, mode=mode)

    _output, loss = on_device.run(x, x)

    assert loss.shape == ()


# -- state


def test_buffers_keep_their_value_from_micro_batch_to_micro_batch(device):
    x = torch.ones(4, 3)
    on_device = device(Body(add_up), x[:1], mode="inference")

    (outputs,) = on_device.run(x, iterations=4, output_mode="all")

    assert outputs.tolist() == [step * weight for step in (1, 2, 3, 4) for weight in (1.0, 2.0, 3.0)]


def test_buffers_keep_their_value_from_call_to_call(device):
    x = torch.ones(1, 3)
    on_device = device(Body(add_up), x, mode="inference")

    on_device.run(x)
    on_device.run(x)

    assert on_device.buffers()["total"].tolist() == [2.0, 2.0, 2.0]


def test_each_replica_writes_to_its_own_buffers(device):
    rows = torch.tensor([[1.0] * 3, [10.0] * 3])
    on_device = device(Body(add_up), rows[:1], mode="inference", replicas=2)

    on_device.run(rows, replicas=2)

    assert [buffers["total"].tolist() for buffers in on_device.state.buffers] == [[1.0] * 3, [10.0] * 3]


def test_a_constant_is_the_same_in_every_micro_batch(device):
    def count(module, x):
        total = torch.zeros(3) + torch.tensor([0.0, 0.0, 0.0])
        kept = torch.tensor([1.0, 1.0, 1.0])
        kept += x.sum(0)
        return total + kept

    on_device = device(Body(count), torch.ones(1, 3), mode="inference")

    (outputs,) = on_device.run(torch.ones(3, 3), iterations=3, output_mode="all")

    assert outputs.tolist() == [2.0] * 9


def test_without_settings_nothing_is_trained(device):
    x = torch.ones(2, 3)
    on_device = device(nn.Linear(3, 3), x, x, loss=F.mse_loss)
    before = on_device.weights()

    on_device.run(x, x)

    assert all(torch.equal(weight, before[name]) for name, weight in on_device.weights().items())


def test_parameters_that_no_gradient_reaches_stay(device, settings):
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.cut, self.frozen = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return F.mse_loss(self.used(x) + self.cut(x).detach() + self.frozen(x), x)

    x = torch.ones(2, 3)
    on_device = device(Partly(), x)
    before = on_device.weights()

    on_device.run(x, settings=settings(weight_decay=0.5))

    changed = {name for name, weight in on_device.weights().items() if not torch.equal(weight, before[name])}
    assert changed == {"used.weight", "used.bias"}


def test_tied_weights_are_one_tensor_with_the_sum_of_the_gradients(device, settings):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(3, 3, bias=False)
            self.decode = nn.Linear(3, 3, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x):
            return self.decode(self.encode(x))

    model, x = Tied(), torch.randn(2, 3)
    on_device = device(model, x, x, loss=F.mse_loss)
    F.mse_loss(model(x), x).backward()

    on_device.run(x, x, settings=settings(learning_rate=1.0))

    weight = model.encode.weight
    assert list(on_device.weights()) == ["encode.weight"]
    torch.testing.assert_close(on_device.weights()["encode.weight"], weight.detach() - weight.grad)


def test_a_loss_of_several_elements_counts_as_their_sum(device, settings):
    x = torch.tensor([2.0, 2.0, 2.0])
    on_device = device(Body(lambda module, x: F.mse_loss(module.weight, x, reduction="none")), x)

    on_device.run(x, settings=settings(learning_rate=0.25))

    assert on_device.weights()["weight"].tolist() == [1.5, 2.0, 2.5]


# -- random numbers


def dropped(device):
    return device(Body(lambda module, x: F.dropout(x * module.weight)), torch.ones(8, 3), mode="inference")


def test_the_global_generator_is_not_touched(device):
    on_device, x = dropped(device), torch.ones(8, 3)
    before = torch.get_rng_state()

    on_device.run(x)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_devices_stream_moves_on(device):
    on_device, x = dropped(device), torch.ones(8, 3)

    (first,), (second,) = on_device.run(x), on_device.run(x)

    assert not torch.equal(first, second)


def test_the_same_stream_gives_the_same_numbers(device):
    x = torch.ones(8, 3)
    one, other = dropped(device), dropped(device)
    one.state.rng_state = other.state.rng_state = torch.Generator().manual_seed(7).get_state()

    assert torch.equal(one.run(x)[0], other.run(x)[0])


def test_what_the_host_draws_in_between_does_not_matter(device):
    x = torch.ones(8, 3)
    one, other = dropped(device), dropped(device)
    one.state.rng_state = other.state.rng_state = torch.Generator().manual_seed(7).get_state()
    one.run(x)
    other.run(x)

    torch.rand(100)

    assert torch.equal(one.run(x)[0], other.run(x)[0])


def test_each_micro_batch_draws_anew(device):
    on_device = dropped(device)

    (outputs,) = on_device.run(torch.ones(16, 3), iterations=2, output_mode="all")

    assert not torch.equal(outputs[:8], outputs[8:])


# -- what the caller does around a call


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_the_callers_modes_do_not_matter(device, settings, context):
    x = torch.randn(4, 3)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
    one, other = device(model, x, x, loss=F.mse_loss), device(model, x, x, loss=F.mse_loss)

    expected = one.run(x, x, settings=settings())
    with context():
        found = other.run(x, x, settings=settings())

    assert all(torch.equal(*pair) for pair in zip(found, expected))
    assert all(torch.equal(weight, one.weights()[name]) for name, weight in other.weights().items())


def test_a_default_device_does_not_matter(device):
    on_device = device(Body(lambda module, x: torch.zeros(3) + module.weight), torch.ones(3), mode="inference")

    with torch.device("meta"):
        (result,) = on_device.run(torch.ones(3, device="cpu"))

    assert result.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_callers_gradient_mode_is_restored(device, is_on):
    def forward(module, x):
        torch.set_grad_enabled(False)
        return F.mse_loss(module.weight, x)

    with torch.set_grad_enabled(is_on):
        device(Body(forward), torch.ones(3)).run(torch.ones(3))

        assert torch.is_grad_enabled() == is_on


# -- errors that only values can cause


def test_an_error_comes_through_as_torch_words_it(device):
    table, indices = torch.ones(4, 3), torch.tensor([0, 1])
    on_device = device(Body(fail_on_negatives), table, indices)

    with pytest.raises(IndexError, match="index out of range"):
        on_device.run(table, torch.tensor([0, 9]))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes since Python 3.11")
def test_an_error_names_the_users_line(device):
    table, indices = torch.ones(4, 3), torch.tensor([0, 1])
    on_device = device(Body(fail_on_negatives), table, indices)

    with pytest.raises(IndexError) as caught:
        on_device.run(table, torch.tensor([0, 9]))

    line = fail_on_negatives.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}:" in caught.value.__notes__[0]


def test_a_step_that_fails_changes_no_weight(device, settings):
    table, indices = torch.ones(4, 3), torch.tensor([0, 1])
    on_device = device(Body(fail_on_negatives), table, indices)
    before = on_device.weights()["weight"]

    with pytest.raises(IndexError):
        on_device.run(table.repeat(2, 1), torch.tensor([0, 1, 0, 9]), settings=settings(), accumulation=2)

    assert torch.equal(on_device.weights()["weight"], before)


def test_a_call_after_a_failure_is_as_if_there_had_been_none(device, settings):
    table, indices = torch.full((4, 3), 2.0), torch.tensor([0, 1])
    failed, fresh = device(Body(fail_on_negatives), table, indices), device(Body(fail_on_negatives), table, indices)
    with pytest.raises(IndexError):
        failed.run(table.repeat(2, 1), torch.tensor([0, 1, 0, 9]), settings=settings(), accumulation=2)

    failed.run(table, indices, settings=settings())
    fresh.run(table, indices, settings=settings())

    assert torch.equal(failed.weights()["weight"], fresh.weights()["weight"])


def test_a_loss_of_nan_comes_through(device):
    on_device = device(Body(lambda module, x: F.mse_loss(module.weight.log(), x.log())), torch.ones(3))

    (loss,) = on_device.run(torch.full((3,), -1.0))

    assert math.isnan(loss)
