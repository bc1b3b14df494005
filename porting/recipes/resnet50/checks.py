"""Neighbours have equal losses until BatchNorm sees smaller batches; rates and groups are those that were planned."""

from __future__ import annotations

from types import ModuleType
from typing import List

from torch import nn

from porting.models import resnet
from porting.recipe_chain import chain_of_equal_losses, close_losses, demand, holds, measured, reaches
from porting.recipes.resnet50 import workload

# 50 layers take their time
NUM_STEPS = 6

# few, small images in batches of 16: only the rates matter here
SMALL = {"width": 2, "num_images": 64, "batch_size": 16}

# what learns in seconds: after 100 and 48 steps 0.984 and 0.973 are right, where a quarter would be by chance
QUICK = workload.Setup(image_size=16, num_classes=4)


def last_losses(step: ModuleType) -> float:
    """Train for an epoch and a half and return the mean of the last eight losses."""
    return float(sum(step.train(48)[-8:])) / 8


def groups_are_right(_step: object) -> str:
    """Check that weights of convolutions and linear layers decay, and nothing else does."""
    model = resnet.build("resnet50", width=2)
    layers = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    decayed, others = ({id(parameter) for parameter in group["params"]} for group in workload.make_groups(model))
    decays = [group["weight_decay"] for group in workload.make_groups(model)]
    is_met = decayed == {id(layer.weight) for layer in layers} and decays[0] > decays[1] == 0.0
    demand(is_met, f"{len(decayed)} parameters decay, and {len(layers)} layers have weights; decays {decays}")
    demand(decayed | others == {id(parameter) for parameter in model.parameters()}, "a parameter is in no group")
    return f"{len(decayed)} weights decay, {len(others)} biases and parameters of BatchNorm do not"


def rate_follows_the_plan(_step: object) -> str:
    """Check the factor at the ends of warm-up and of each part of the schedule."""
    epochs = (0, 2.5, 5, 29.9, 30, 60, 80)
    found = [round(workload.compute_rate_factor(epoch), 6) for epoch in epochs]
    demand(found == [0.1, 0.55, 1.0, 1.0, 0.1, 0.01, 0.001], f"factors {found} at epochs {epochs}")
    real = (workload.REAL.base_rate, workload.REAL.num_epochs)
    demand(real == (0.1, 90), "the real network has a base rate of 0.1 and 90 epochs")
    return "0.1 -> 1 in 5 epochs, a tenth after 30, 60 and 80 of 90"


def list_rates(step: ModuleType, num_steps: int) -> List[float]:
    """Train with the small setup and return the learning rate of each step."""
    return step.train(num_steps, workload.Setup(**SMALL)).measured.rates


def the_device_has_the_planned_rates(step: ModuleType) -> str:
    """Compare the device's learning rate in each step of nine epochs with the plan."""
    found = list_rates(step, 36)
    planned = [0.4 * 16 / 256 * workload.compute_rate_factor(number * 10 / 4) for number in range(36)]
    worst = max(abs(one - other) for one, other in zip(found, planned))
    is_met = len(found) == 36 and worst <= 1e-9
    demand(is_met, f"{len(found)} rates, which differ by up to {worst:.1e} from the plan")
    return f"36 steps, from {found[0]:g} over {max(found):g} to {found[-1]:g}"


def the_rate_is_scaled(step: ModuleType) -> str:
    """Check that two replicas train with twice the learning rate."""
    found, planned = max(list_rates(step, 4)), 0.4 * 32 / 256
    demand(abs(found - planned) <= 1e-9, f"the highest learning rate is {found:g} instead of {planned:g}")
    return f"{found:g} for steps of 32 images, 0.4 for 256"


CHECKS = (
    holds(0, "biases and BatchNorm have no weight decay", groups_are_right),
    holds(0, "the learning rate has a warm-up and three falls", rate_follows_the_plan),
    reaches(0, "loss after 48 steps", at_most=2.1, measure=last_losses),
    *chain_of_equal_losses(1, 3),
    holds(1, "the device's learning rate follows the plan", the_device_has_the_planned_rates),
    reaches(3, "test accuracy", at_least=0.9, measure=measured("accuracy", 100, QUICK), slow=True),
    close_losses(4, like=3, relative=0.2, because="BatchNorm normalises micro-batches of 16"),
    holds(5, "the learning rate grows with the batch", the_rate_is_scaled),
    reaches(5, "test accuracy", at_least=0.8, measure=measured("accuracy", 48, QUICK), slow=True),
)
