"""Loops are written out and branches selected while a step is traced."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import simulator as poptorch
from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.step_program import build_programs
from tests.engines.compiled.step_requests import inference, targets, training
from tests.engines.interpreted_programs import interpret_programs


@pytest.mark.parametrize(("length", "is_written_out"), [(4, True), (100, False)])
def test_a_short_recurrence_consists_of_its_cells(length, is_written_out):
    graph = capture_step(nn.LSTM(3, 2), [torch.ones(length, 1, 3)], mode="inference")

    (program,) = build_programs(graph, BuildRequest(CallPlan())).by_role.values()

    assert (torch.ops.aten.tanh.default in targets(program)) is is_written_out


class Repeated(nn.Module):
    """A layer that is used four times, and another one."""

    def __init__(self):
        super().__init__()
        self.repeated, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        for _time in range(4):
            x = torch.tanh(self.repeated(x))
        return self.last(x)


@pytest.mark.parametrize(("is_deterministic", "num_products"), [(False, 4 + 1 + 1), (True, 4 + 1 + 4)])
def test_the_gradient_of_a_repeated_layer_is_one_product(settings, is_deterministic, num_products):
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        (program,) = build_programs(*training(settings("SGD1"), Repeated())).by_role.values()
    finally:
        torch.use_deterministic_algorithms(False)

    # those of the last layer and of the way back, and those of the repeated weight
    assert targets(program).count(torch.ops.aten.mm.default) == num_products


def run(graph, request, *inputs):
    """Run an interpreted program of inference on the inputs and a weight."""
    programs = build_programs(graph, request)
    (program,) = programs.by_role.values()
    known = {f"input:{index}:": tensor for index, tensor in enumerate(inputs)}
    known["parameter::weight"] = torch.tensor([1.0, 2.0, 3.0])
    known.update({f"constant:{index}:": value for index, value in enumerate(graph.constant_values)})
    return interpret_programs(programs)[program.role]([known[spec.name] for spec in program.arguments])


def test_a_loop_is_written_out():
    def triple(module, x):
        return poptorch.for_loop(3, lambda value: value + x * module.weight, [x * 0])[0]

    x = torch.arange(6.0).reshape(2, 3)
    (result,) = run(*inference(triple, x), x)

    assert torch.equal(result, 3 * x * torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_a_branch_is_selected_by_its_condition(value):
    def choose(_module, x):
        (result,) = poptorch.cond(x.sum() > 0, lambda t: t * 2, [x], lambda t: t - 1, [x])
        return result

    x = torch.full((2, 3), value)
    (result,) = run(*inference(choose, x), x)

    assert torch.equal(result, x * 2 if value > 0 else x - 1)


def test_slices_that_begin_where_a_tensor_says_are_traced():
    def cut(_module, x, start):
        return poptorch.dynamic_slice(x, 1, start, 1, 1)

    x, start = torch.arange(6.0).reshape(2, 3), torch.tensor([2], dtype=torch.int32)
    (result,) = run(*inference(cut, x, start), x, start)

    assert torch.equal(result, x[:, 2:])
