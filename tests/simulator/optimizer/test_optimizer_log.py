"""The lines that say what optimizer settings the device got."""

from __future__ import annotations

import pytest
import torch

from porting.simulator import optim
from porting.simulator._optimizer_attributes import OptimizerAttrTracker, convertOptimizerToDict, describe_settings
from porting.simulator.options import Options


def build(cls, **settings):
    return cls([torch.nn.Parameter(torch.zeros(2))], **{"lr": 0.1, **settings})


def convert(optimizer):
    return convertOptimizerToDict(optimizer, OptimizerAttrTracker(Options()), Options(), False)


def test_lines_for_sgd_name_settings_in_alphabetical_order():
    settings = convert(build(optim.SGD, momentum=0.5, loss_scaling=8.0, velocity_accum_type=torch.float16))

    assert describe_settings(settings, [["a", "b"]]) == [
        "Updating graph optimizer with SGD2, defaultDampening=0 (const), defaultLearningRate=0.1, "
        "defaultMomentum=0.5, defaultVelocityScaling=8, defaultWeightDecay=0 (const), lossScaling=8, "
        "nesterov=0 (const), accumType=float32, firstOrderMomentumAccumType=float16, "
        "secondOrderMomentumAccumType=float32, useTfVariant=0, maxGradNorm=inf",
        "Updating group 0 optimizer with SGD2, dampening=0 (const), learningRate=0.1, momentum=0.5, "
        "nesterov=0 (const), velocityScaling=8, weightDecay=0 (const) for (tensors affected ['a', 'b'])",
    ]


def test_lines_for_the_combined_accumulator_have_its_velocity_scaling():
    settings = convert(build(optim.SGD, use_combined_accum=True, velocity_scaling=2.0, loss_scaling=8.0))

    assert "defaultVelocityScaling=2, " in describe_settings(settings, [[]])[0]


@pytest.mark.parametrize(
    ("optimizer", "name", "keys"),
    [
        (
            build(optim.AdamW, bias_correction=False),
            "ADAMW",
            "defaultBeta1 defaultBeta2 defaultEps defaultLearningRate defaultWeightDecay lossScaling",
        ),
        (
            build(optim.LAMB, bias_correction=False),
            "LAMB",
            "defaultBeta1 defaultBeta2 defaultEps defaultLearningRate defaultMaxWeightNorm defaultWeightDecay "
            "lossScaling",
        ),
        (
            build(optim.RMSprop, centered=True),
            "RMSPROP",
            "defaultAlpha defaultEps defaultLearningRate defaultMomentum defaultWeightDecay lossScaling",
        ),
    ],
)
def test_lines_name_the_family_and_its_settings(optimizer, name, keys):
    graph_line = describe_settings(convert(optimizer), [[]])[0]

    family, *pairs = graph_line.split(" with ")[1].split(", ")
    assert family == name
    assert [pair.split("=")[0] for pair in pairs[:-5]] == keys.split()
