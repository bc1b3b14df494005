"""Operators have the types that the graph compiler gives them, and each tensor a name of its own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.step_anchors import StepValue
from porting.simulator._graph.compiler_names import (
    list_gradient_types,
    list_operator_types,
    list_update_types,
    name_step_values,
    name_tensors,
)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def types_of(function, *inputs):
    graph = capture_step(Function(function), list(inputs), mode="inference")
    return [list_operator_types(operator.node) for operator in graph.operators]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (torch.relu, ("Relu",)),
        (lambda x: x.relu_(), ("Relu",)),
        (torch.rsqrt, ("Reciprocal",)),
        (lambda x: x.mean(1), ("ReduceMean",)),
        (lambda x: x[:, 1], ("Slice",)),
        (lambda x: F.linear(x, x), ("MatMul",)),
        (lambda x: F.linear(x, x, x[0]), ("MatMul", "Add")),
        (lambda x: F.log_softmax(x, 1), ("LogSoftmax",)),
    ],
)
def test_an_operator_has_the_compilers_type(function, expected):
    assert types_of(function, torch.ones(3, 3))[-1] == expected


def test_a_transposed_convolution_is_told_from_another():
    x, weight = torch.ones(1, 2, 4), torch.ones(2, 2, 3)

    assert types_of(F.conv1d, x, weight) == [("Conv",)]
    assert types_of(F.conv_transpose1d, x, weight) == [("ConvTranspose",)]


def test_products_and_convolutions_have_a_gradient_for_each_operand():
    assert list_gradient_types("MatMul") == ("MatMulLhsGrad", "MatMulRhsGrad")
    assert list_gradient_types("Conv") == ("ConvDataGrad", "ConvWeightsGrad")
    assert list_gradient_types("Relu") == ("ReluGrad",)


@pytest.mark.parametrize("optimizer", ["SGD1", "SGD2"])
def test_momentum_adds_an_operator_to_an_update(optimizer):
    assert list_update_types(optimizer, has_momentum=True) == (f"{optimizer}AcclUpdate", f"{optimizer}VarUpdate")
    assert list_update_types(optimizer, has_momentum=False) == ("SGD0VarUpdate",)


def capture_training():
    return capture_step(nn.Linear(3, 2), [torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)], loss=F.cross_entropy)


def test_weights_inputs_and_results_are_named():
    names = name_tensors(capture_training())

    assert list(names) == ["weight", "bias", "input", "input/1", "loss", "Add:0"]


def test_the_second_result_of_a_type_has_a_number():
    graph = capture_step(nn.Sequential(nn.ReLU(), nn.ReLU()), [torch.ones(2)], mode="inference")

    assert list(name_tensors(graph)) == ["input", "Relu:0", "Relu:0/1"]


def test_a_trained_parameter_has_a_gradient_an_update_and_its_state():
    names = name_step_values(
        capture_training(), slots={"weight": ("Accl1",), "other": ("Accl1",)}, adapts_loss_scaling=False
    )

    assert names == {
        "Gradient___weight": StepValue("gradient", "weight"),
        "UpdatedVar___weight": StepValue("weight", "weight"),
        "Gradient___bias": StepValue("gradient", "bias"),
        "UpdatedVar___bias": StepValue("weight", "bias"),
        "Accl1___weight": StepValue("slot", "weight", "Accl1"),
    }


def test_loss_scaling_that_adapts_itself_has_names():
    names = name_step_values(capture_training(), slots={}, adapts_loss_scaling=True)

    assert {"finalLossScale", "lossScaleUpdateFactor"} <= set(names)
