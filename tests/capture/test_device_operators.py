"""Operators of a backend can have another shape, another kernel or another recording on the device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.device_operators import define_device_operator, device_operator
from porting.engines.replay.graph_function import GraphFunction

LIBRARY = torch.library.Library("porting_test_device", "FRAGMENT")
LIBRARY.define("double(Tensor x) -> Tensor")
LIBRARY.impl("double", lambda x: x, "CompositeImplicitAutograd")
double = torch.ops.porting_test_device.double


class Doubled(nn.Module):
    """Applies the test's operator."""

    def forward(self, x):
        return double(x)


@pytest.fixture(autouse=True)
def forgotten():
    """Forget what a test defines."""
    yield
    define_device_operator(double.default)


def captured(x):
    graph = capture_step(Doubled(), [x], mode="inference")
    return graph, GraphFunction(graph.graph).call(x)[0]


def test_without_a_definition_the_kernel_runs():
    _, result = captured(torch.ones(2))

    assert torch.equal(result, torch.ones(2))


def test_a_kernel_for_the_device_runs_there_only():
    define_device_operator(double.default, run=lambda x: x * 2)

    _, result = captured(torch.ones(2))

    assert torch.equal(result, torch.full((2,), 2.0))
    assert torch.equal(double(torch.ones(2)), torch.ones(2))


def test_the_shape_is_that_of_the_device():
    define_device_operator(double.default, shape=lambda x: torch.cat([x, x]), run=lambda x: torch.cat([x, x]))

    graph, result = captured(torch.ones(2))

    assert graph.outputs[0].shape == (4,)
    assert torch.equal(result, torch.ones(4))


def test_errors_of_the_shape_come_through():
    def refuse(_x):
        raise ValueError("not on this device")

    define_device_operator(double.default, shape=refuse)

    with pytest.raises(ValueError, match="not on this device"):
        captured(torch.ones(2))


def test_a_recording_replaces_the_operator():
    define_device_operator(double.default, record=lambda recorder, x: recorder.call(torch.ops.aten.add.Tensor, x, x))

    graph, result = captured(torch.ones(2))

    assert [op.operator for op in graph.operators] == ["aten.add.Tensor"]
    assert torch.equal(result, torch.full((2,), 2.0))


def test_unknown_operators_mean_the_same_everywhere():
    assert device_operator(torch.ops.aten.add.Tensor) is None
