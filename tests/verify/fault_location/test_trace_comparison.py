"""Two traces are aligned by module and order, and the first operator that differs beyond rounding is the fault."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin
from porting.verify.fault_location.trace_comparison import find_extra_operator, find_value_fault, measure_apart


def trace(make, *, seed=1.0, is_trained=True):
    """Return the trace of functions: `make` is given a function that runs one in a module."""
    torch.manual_seed(0)
    made = MicroBatchTrace()
    weight = nn.Parameter(torch.randn(4, 4))

    def run(module, function, *args):
        return made.run(Origin(module, None, getattr(function, "__name__", "")), function, args, {})

    loss = make(run, weight, torch.randn(3, 4))
    made.keep_loss(loss)
    if is_trained:
        made.run_backward((loss * seed).backward)
    return made


def plain(run, weight, x):
    hidden = run("first", torch.mm, x, weight)
    hidden = run("act", torch.tanh, hidden)
    return run("loss", torch.sum, hidden)


# -- distances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_rounding"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.0 + 1e-7], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([1.0, math.nan], [1.0, math.nan], True),
        ([1.0, math.inf], [1.0, 2.0], False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ([True, False], [True, True], False),
        ([1.0, 2.0], [1.0, 2.0, 3.0], False),
        ([1j, 2.0], [1j, 2.0], True),
        ([1j, 2.0], [2j, 2.0], False),
    ],
)
def test_rounding_is_told_from_a_difference(one, other, is_rounding):
    assert measure_apart(torch.tensor(one), torch.tensor(other)).is_rounding is is_rounding


def test_what_another_rounding_of_the_weights_does_is_rounding():
    one, other, changed = torch.ones(4), torch.ones(4) + 1e-3, torch.ones(4) - 1e-3

    assert not measure_apart(one, other).is_rounding
    assert measure_apart(one, other, changed).is_rounding
    assert not measure_apart(one, other, torch.ones(5)).is_rounding


def test_the_factor_is_what_comes_nearest():
    assert measure_apart(torch.ones(4), torch.full((4,), 1.5)).factor == pytest.approx(1.5)
    assert math.isnan(measure_apart(torch.zeros(4), torch.ones(4)).factor)


def test_half_precision_rounds_more():
    one = torch.ones(4)

    assert measure_apart(one, (one * 1.001).half()).is_rounding
    assert not measure_apart(one, one * 1.001).is_rounding


# -- values ------------------------------------------------------------------------------------------------------------


def test_equal_traces_have_no_fault():
    assert find_value_fault(trace(plain), trace(plain)) is None
    assert find_value_fault(trace(plain), trace(plain), seeds=(1.0, 1.0, 1.0)) is None


def test_the_first_operator_that_differs_is_the_fault():
    def ported(run, weight, x):
        hidden = run("first", torch.mm, x, weight * 1.1)
        return run("loss", torch.sum, run("act", torch.tanh, hidden))

    fault = find_value_fault(trace(plain), trace(ported))

    assert (fault.plain.name, fault.ported.name, fault.record.origin.module) == ("aten.mm", "aten.mm", "first")
    assert fault.apart.factor == pytest.approx(1.1)


def test_an_operator_that_only_the_port_runs_is_the_fault_of_the_next_common_one():
    def ported(run, weight, x):
        hidden = run("first", torch.mm, x, weight)
        hidden = run("act", torch.mul, hidden, 2.0)
        return run("loss", torch.sum, run("act", torch.tanh, hidden))

    fault = find_value_fault(trace(plain), trace(ported))

    assert fault.plain is None
    assert (fault.ported.name, fault.ported.args[1]) == ("aten.mul", 2.0)


def test_an_operator_that_only_plain_pytorch_runs_is_one_too():
    def ported(run, weight, x):
        return run("loss", torch.sum, run("first", torch.mm, x, weight))

    fault = find_value_fault(trace(plain), trace(ported))

    assert fault.ported is None
    assert fault.plain.name == "aten.tanh"


def test_what_comes_behind_the_last_common_operator_is_told_by_the_loss():
    def ported(run, weight, x):
        return run("loss", torch.mul, plain(run, weight, x), 0.5)

    fault = find_value_fault(trace(plain), trace(ported))

    assert (fault.plain, fault.ported.name) == (None, "aten.mul")


def test_an_extra_operator_that_changes_nothing_is_no_fault():
    def ported(run, weight, x):
        run("act", torch.mul, x, 3.0)
        return plain(run, weight, x)

    fault = find_value_fault(trace(plain), trace(ported))

    assert fault is None


def test_copies_are_passed_over():
    def ported(run, weight, x):
        return plain(run, weight, run("first", torch.clone, x))

    assert find_value_fault(trace(plain), trace(ported)) is None


def test_what_a_change_of_last_bits_does_is_no_fault():
    def shifted(by):
        def make(run, weight, x):
            return plain(run, weight.detach() + by, x)

        return trace(make, is_trained=False)

    assert find_value_fault(shifted(0.0), shifted(1e-4)) is not None
    assert find_value_fault(shifted(0.0), shifted(1e-4), shifted(-1e-4)) is None


def test_modules_may_run_in_another_order():
    def make(order):
        def compute(run, weight, x):
            parts = {name: run(name, torch.mm, x, weight) for name in order}
            return run("loss", torch.sum, parts["a"] + 2 * parts["b"])

        return trace(compute)

    assert find_value_fault(make("ab"), make("ba")) is None


# -- gradients ---------------------------------------------------------------------------------------------------------


def scaled(run, weight, x):
    """Compute what `plain` does, with a gradient that is 1.5 times as large behind the first module."""
    hidden = run("first", torch.mm, x, weight)
    more = run("scale", torch.mul, hidden, 1.5)
    rest = run("scale", torch.sub, hidden, more)
    hidden = run("scale", torch.add, more, run("scale", torch.Tensor.detach, rest))
    return run("loss", torch.sum, run("act", torch.tanh, hidden))


def test_a_gradient_that_differs_where_values_agree_is_found():
    assert find_value_fault(trace(plain), trace(scaled)) is None

    fault = find_value_fault(trace(plain), trace(scaled), seeds=(1.0, 1.0, 1.0))

    assert fault.record.is_backward
    assert fault.apart.factor == pytest.approx(1.5)


def test_what_the_losses_were_multiplied_by_is_no_difference():
    one, other = trace(plain, seed=0.25), trace(plain, seed=1024.0)

    assert find_value_fault(one, other, seeds=(0.25, 1024.0, 0.25)) is None
    assert find_value_fault(one, other, seeds=(1.0, 1.0, 1.0)) is not None


def test_what_a_derivative_is_multiplied_by_may_be_without_the_loss():
    def power(run, weight, x):
        return run("loss", torch.sum, run("act", torch.pow, run("first", torch.mm, x, weight), 3))

    one, other = trace(power, seed=0.25), trace(power, seed=8.0)

    assert find_value_fault(one, other, seeds=(0.25, 8.0, 0.25)) is None


def test_a_cut_of_the_graph_is_told_before_all_that_the_port_has_alone():
    extra = find_extra_operator(trace(plain), trace(scaled))

    assert extra.name == "aten.detach"
    assert find_extra_operator(trace(plain), trace(plain)) is None


# -- what is no fault --------------------------------------------------------------------------------------------------


def run_cells(run, weight, x):
    first = run("rnn", torch.tanh, run("rnn", torch.mm, x, weight))
    return first, run("rnn", torch.tanh, run("rnn", torch.mm, first, weight))


def whole(run, weight, x):
    """Keeps what nobody uses, as a recurrent layer of several layers does with its last states."""
    cells = run_cells(run, weight, x)
    run("rnn", torch.stack, cells)
    return run("loss", torch.sum, cells[1])


def parts(run, weight, x, reduce=torch.sum):
    cells = run_cells(run, weight, x)
    run("rnn", torch.cat, [run("rnn", torch.stack, [cell]) for cell in cells])
    return run("loss", reduce, cells[1])


def test_what_the_loss_depends_on_is_the_fault_and_not_what_is_kept_in_another_form():
    fault = find_value_fault(trace(whole), trace(lambda *args: parts(*args, reduce=torch.mean)))

    assert fault.record.name == "aten.mean"


def test_layers_that_are_run_one_by_one_are_those_that_are_run_as_a_whole():
    assert find_value_fault(trace(whole), trace(parts), seeds=(1.0, 1.0, 1.0)) is None
