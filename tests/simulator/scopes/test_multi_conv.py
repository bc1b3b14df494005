"""`MultiConv`: its settings, that it changes no result, and how its scopes show in the compiled graph."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import MultiConv, MultiConvPlanType


class Convolutions(nn.Module):
    """Two convolutions in one `MultiConv`, and one after it; returns the sum and its square as the loss."""

    def __init__(self, make=MultiConv):
        super().__init__()
        self.make = make
        self.first = nn.Conv1d(1, 2, 3, padding=1)
        self.second = nn.Conv1d(1, 2, 1)
        self.third = nn.Conv1d(2, 1, 1)

    def forward(self, x):
        with self.make():
            a = self.first(x)
            b = self.second(x * 2)
        out = self.third(a + b)
        return out, simulator.identity_loss(out**2, reduction="mean")


class Traced(nn.Module):
    """Runs `body(x)` as its forward."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.conv = nn.Conv1d(1, 1, 1)

    def forward(self, x):
        return self.body(self, x)


def operators(executor, kind):
    return [op for op in json.loads(executor._debugGetPopartIR())["maingraph"] if op["type"] == kind]


def configured():
    return (
        MultiConv()
        .availableMemoryProportions((0.4, 0.6))
        .partialsTypes([torch.float, torch.half])
        .enableConvDithering([True, False])
        .planType(MultiConvPlanType.Serial)
        .perConvReservedTiles(100)
        .cycleBackOff(0.3)
    )


def test_it_changes_no_result(poptorch):
    torch.manual_seed(0)
    model, x = Convolutions(configured), torch.randn(2, 1, 5)

    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x))


def test_the_convolutions_of_a_scope_are_one_operator():
    executor = simulator.inferenceModel(Convolutions(configured))
    executor.compile(torch.ones(1, 1, 5))

    (multi_conv,) = operators(executor, "MultiConv")
    assert [tensor["name"] for tensor in multi_conv["outputs"]] == ["first/Conv:0", "second/Conv:0"]
    assert len(operators(executor, "Conv")) == 1
    settings = {
        "availableMemoryProportions": "[0.4, 0.6]",
        "partialsTypes": "[0, 1]",
        "planType": "1",
        "perConvReservedTiles": "100",
        "cycleBackOff": "0.3",
        "enableConvDithering": "[true, false]",
    }
    assert settings.items() <= multi_conv["attributes"].items()


def test_gradients_of_a_scope_are_of_other_types():
    executor = simulator.trainingModel(Convolutions())
    executor.compile(torch.ones(1, 1, 5))

    assert len(operators(executor, "MultiConv")) == 1
    assert len(operators(executor, "MultiConvWeightsGrad")) == 1
    assert len(operators(executor, "ConvWeightsGrad")) == 1


def test_each_scope_is_an_operator_of_its_own():
    def forward(self, x):
        with MultiConv():
            x = self.conv(x)
        with MultiConv():
            return self.conv(x)

    executor = simulator.inferenceModel(Traced(forward))
    executor.compile(torch.ones(1, 1, 5))

    assert len(operators(executor, "MultiConv")) == 2


def test_scopes_are_not_nested():
    def forward(self, x):
        with MultiConv():
            x = self.conv(x)
            with MultiConv():
                return self.conv(x)

    with pytest.raises(simulator.Error, match="Nested poptorch.MultiConv is not supported."):
        simulator.inferenceModel(Traced(forward))(torch.ones(1, 1, 5))


@pytest.mark.parametrize("body", [lambda self, x: x, lambda self, x: x + 1])
def test_a_scope_has_a_convolution(body):
    def forward(self, x):
        with MultiConv():
            x = body(self, x)
        return self.conv(x)

    with pytest.raises(simulator.Error, match=r"Unexpected end_multi_conv, is the IR malformed\?"):
        simulator.inferenceModel(Traced(forward))(torch.ones(1, 1, 5))


def test_on_the_cpu_nothing_is_checked():
    with MultiConv(), MultiConv():
        pass


@pytest.mark.parametrize("value", [0.5, [0.5], (0.25, 0.5), None])
def test_memory_proportions_are_floats(value):
    multi_conv = MultiConv()

    assert multi_conv.availableMemoryProportions(value) is multi_conv


@pytest.mark.parametrize("value", [1, "0.5", [], (), [0.5, 1], {0.5}])
def test_other_memory_proportions_are_refused(value):
    with pytest.raises(AssertionError, match="Invalid available memory proportion!"):
        MultiConv().availableMemoryProportions(value)


@pytest.mark.parametrize(
    ("value", "codes"),
    [(torch.float, [0]), (torch.float16, [1]), ([torch.float, torch.half], [0, 1]), ((torch.half,), [1]), ([], [])],
)
def test_partials_types_become_numbers(value, codes):
    assert MultiConv().partialsTypes(value)._settings["partials_types"] == codes


@pytest.mark.parametrize("value", [torch.int, "half", None, [torch.float, torch.float64], [0]])
def test_other_partials_types_are_refused(value):
    with pytest.raises(ValueError, match=r"Invalid partials types\. Expecting torch\.float or torch\.half"):
        MultiConv().partialsTypes(value)


@pytest.mark.parametrize("value", [True, [True, False], None])
def test_dithering_is_on_or_off(value):
    multi_conv = MultiConv()

    assert multi_conv.enableConvDithering(value) is multi_conv


@pytest.mark.parametrize("value", [1, "yes", [], [True, 0]])
def test_other_values_of_dithering_are_refused(value):
    with pytest.raises(ValueError, match="value must be bool or list of bools"):
        MultiConv().enableConvDithering(value)


def test_plan_types_are_of_their_enumeration():
    multi_conv = MultiConv()

    assert multi_conv.planType(None) is multi_conv
    assert multi_conv.planType(MultiConvPlanType.Parallel) is multi_conv
    for value in (0, "Parallel"):
        with pytest.raises(AssertionError, match="Invalid plan type!"):
            multi_conv.planType(value)


def test_reserved_tiles_and_back_off_have_their_types():
    with pytest.raises(AssertionError):
        MultiConv().perConvReservedTiles(0.5)
    with pytest.raises(AssertionError):
        MultiConv().cycleBackOff(1)
