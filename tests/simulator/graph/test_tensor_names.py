"""Each tensor of a compiled model has a name of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.step_anchors import StepValue
from porting.simulator._graph.tensor_names import name_step_values, name_tensors


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
