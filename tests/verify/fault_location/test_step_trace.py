"""A micro-batch is recorded operator by operator, forward and backward, each in the module that it comes from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.diagnostics import Place
from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin, TensorForm, keep_part


def run(trace, function, *args, module="", **kwargs):
    return trace.run(Origin(module), function, args, kwargs)


def list_names(trace, *, is_backward=False):
    return [record.name for record in trace.values if record.is_backward is is_backward]


def test_operators_are_recorded_with_their_arguments_and_results():
    trace = MicroBatchTrace()

    result = run(trace, torch.add, torch.ones(2, 3), torch.ones(2, 3), alpha=2)

    (record,) = trace.values
    assert (record.name, record.number, record.kwargs) == ("aten.add", 0, {"alpha": 2})
    assert record.args == (TensorForm((2, 3), torch.float32), TensorForm((2, 3), torch.float32))
    assert torch.equal(record.results[0], result)


def test_results_are_copies():
    trace = MicroBatchTrace()

    result = run(trace, torch.mul, torch.ones(2), 3.0)
    result.zero_()

    assert trace.values[0].results[0].tolist() == [3.0, 3.0]


def test_what_went_in_is_known_by_its_operator_through_views_too():
    trace = MicroBatchTrace()

    first = run(trace, torch.mul, torch.ones(2, 3), 2.0)
    run(trace, torch.add, run(trace, torch.t, first), 1.0)

    assert list_names(trace) == ["aten.mul", "aten.add"]
    assert trace.values[1].sources == (0,)


def test_a_function_within_another_is_recorded_once_as_its_own():
    trace = MicroBatchTrace()

    def outer(x):
        return run(trace, torch.tanh, x, module="inner") + 1

    run(trace, outer, torch.ones(2), module="outer")

    assert [(record.name, record.origin.module) for record in trace.values] == [
        ("aten.tanh", "inner"),
        ("aten.add", "outer"),
    ]


def test_empty_memory_and_views_hold_no_new_values():
    trace = MicroBatchTrace()

    for function in (lambda x: torch.empty_like(x), lambda x: x.view(-1), lambda x: x.t()):
        run(trace, function, torch.ones(2, 3))

    assert trace.values == []


@pytest.mark.parametrize("function", [lambda x: x[:, 1:], lambda x: x[0], lambda x: x.transpose(0, 1)])
def test_parts_and_exchanged_axes_are_values(function):
    trace = MicroBatchTrace()

    run(trace, function, torch.ones(2, 3))

    assert len(trace.values) > 0


def test_operators_that_the_loss_depends_on_are_known():
    trace = MicroBatchTrace()
    x = torch.ones(3)

    hidden = run(trace, torch.tanh, x)
    run(trace, torch.exp, x)
    trace.keep_loss(run(trace, torch.sum, hidden))

    assert [trace.values[number].name for number in sorted(trace.collect_used())] == ["aten.tanh", "aten.sum"]


@pytest.mark.parametrize("function", [torch.tanh, torch.exp, torch.relu])
def test_the_gradient_of_a_function_belongs_to_its_module(function):
    trace = MicroBatchTrace()
    x = torch.ones(3, requires_grad=True)

    loss = run(trace, torch.sum, run(trace, function, x, module="act"), module="loss")
    trace.run_backward(loss.backward)

    backward = [record for record in trace.values if record.is_backward]
    assert [record.origin.module for record in backward][-1] == "act"
    assert torch.equal(backward[-1].results[0], x.grad)


def test_gradients_that_are_added_up_are_of_no_module():
    trace = MicroBatchTrace()
    x = torch.ones(3, requires_grad=True)
    parts = [run(trace, torch.mul, x, factor, module="scale") for factor in (2.0, 3.0)]

    loss = run(trace, torch.sum, run(trace, torch.add, *parts, module="join"), module="loss")
    trace.run_backward(loss.backward)

    assert "aten.add" not in list_names(trace, is_backward=True)
    assert list_names(trace, is_backward=True).count("aten.mul") == 2


def test_an_operator_outside_of_any_function_is_not_recorded():
    trace = MicroBatchTrace()

    trace.run_backward(lambda: torch.ones(2) + 1)

    assert trace.values == []


def test_the_line_is_kept_for_the_gradient_too():
    trace, place = MicroBatchTrace(), Place("train.py", 7)
    x = torch.ones(3, requires_grad=True)

    loss = trace.run(Origin("act", place, "torch.exp"), lambda x: x.exp().sum(), (x,), {})
    trace.run_backward(loss.backward)

    assert {record.origin.place for record in trace.values} == {place}
    assert trace.values[-1].origin.title == "ExpBackward0"


def test_an_error_ends_the_recording_of_a_function():
    trace = MicroBatchTrace()

    with pytest.raises(RuntimeError):
        run(trace, torch.mm, torch.ones(2, 3), torch.ones(2, 3))
    run(trace, torch.tanh, torch.ones(2), module="act")

    assert [record.origin.module for record in trace.values] == ["act"]


def test_the_first_inputs_of_a_module_are_kept():
    trace = MicroBatchTrace()

    trace.enter_module("act", (torch.ones(2, 3), None))
    trace.enter_module("act", (torch.ones(4),))

    assert trace.module_inputs == {"act": (TensorForm((2, 3), torch.float32), None)}


@pytest.mark.parametrize(("count", "kept"), [(5, 5), (1 << 18, 1 << 18), ((1 << 18) + 2, (1 << 17) + 1)])
def test_of_a_large_tensor_evenly_spread_elements_are_kept(count, kept):
    value = torch.arange(count)

    part = keep_part(value)

    assert part.numel() == kept
    assert part[0] == 0
    assert part.data_ptr() != value.data_ptr()


def test_the_state_of_a_recurrent_layer_is_recorded_without_its_workspace():
    trace = MicroBatchTrace()

    run(trace, nn.LSTM(3, 4, batch_first=True), torch.ones(2, 5, 3))

    assert all(torch.isfinite(result).all() for record in trace.values for result in record.results[:1])
