"""Hyper-parameters under PopART's names, and what loading them changes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from porting.engines.update.updates import GroupSettings, OptimizerKind
from porting.simulator._optimizer.device_parameters import device_parameters, with_loaded

PLAIN_SGD = GroupSettings(OptimizerKind.SGD2, learning_rate=0.5, weight_decay=0.1, dampening=0.2, loss_scaling=4.0)
SGD1 = dataclasses.replace(PLAIN_SGD, kind=OptimizerKind.SGD1, momentum=0.9, velocity_scaling=8.0)
SGD2 = dataclasses.replace(PLAIN_SGD, momentum=0.9)
ADAM = GroupSettings(OptimizerKind.ADAM, learning_rate=0.5, weight_decay=0.1, beta1=0.8, beta2=0.9, eps=1e-4)


def approx(values):
    return {name: pytest.approx(value) for name, value in values.items()}


def test_sgd_without_momentum_has_two_compound_values():
    assert device_parameters(PLAIN_SGD, set()) == approx(
        {"scaledLearningRate0": 0.5 * 0.8 / 4, "weightDecayScaleFactor0": 1 - 0.5 * 0.8 * 0.1}
    )


def test_sgd_with_a_combined_accumulator_has_its_own():
    assert device_parameters(SGD1, set()) == approx(
        {
            "scaledLearningRate1": 0.5 / 8,
            "scaledMomentum1": 0.9,
            "dampeningScaleFactor1": 0.8 * 8 / 4,
            "scaledWeightDecay1": 0.8 * 0.1 * 8,
        }
    )


def test_sgd_with_separate_accumulators_has_its_own():
    assert device_parameters(SGD2, set()) == approx(
        {
            "scaledLearningRate2": 0.5,
            "scaledMomentum2": 0.9,
            "dampeningScaleFactor2": 0.8 / 4,
            "scaledWeightDecay1": 0.8 * 0.1,
        }
    )


def test_other_optimizers_have_rate_and_decay_and_what_is_variable():
    assert device_parameters(ADAM, set()) == {"learningRate": 0.5, "weightDecay": 0.1}
    assert device_parameters(ADAM, {"beta1", "beta2", "eps"}) == {
        "learningRate": 0.5,
        "weightDecay": 0.1,
        "beta1": 0.8,
        "beta2": 0.9,
        "eps": 1e-4,
    }


@pytest.mark.parametrize("settings", [PLAIN_SGD, SGD1, SGD2, ADAM])
def test_loading_the_present_values_changes_nothing(settings):
    variable = {"beta1", "eps"}
    values = {
        f"{name}___specific___w": torch.tensor(value, dtype=torch.float32)
        for name, value in device_parameters(settings, variable).items()
    }

    assert with_loaded(
        settings, "w", {**values, "lossScaling_FLOAT": torch.tensor(settings.loss_scaling)}, variable
    ) == (settings)


@pytest.mark.parametrize("settings", [PLAIN_SGD, SGD1, SGD2, ADAM])
def test_loaded_values_are_those_of_the_settings_that_made_them(settings):
    variable = {"beta1", "beta2", "eps"}
    other = dataclasses.replace(settings, learning_rate=0.25, weight_decay=0.3)
    if settings.momentum:
        other = dataclasses.replace(other, momentum=0.5, dampening=0.4)
    if settings.kind == OptimizerKind.ADAM:
        other = dataclasses.replace(other, beta1=0.7, eps=1e-3)
    values = {
        f"{name}___specific___w": torch.tensor(value, dtype=torch.float64)
        for name, value in device_parameters(other, variable).items()
    }

    loaded = with_loaded(settings, "w", values, variable)

    for name in ("learning_rate", "weight_decay", "momentum", "dampening", "beta1", "beta2", "eps", "kind"):
        assert getattr(loaded, name) == pytest.approx(getattr(other, name)), name


def test_values_of_other_parameters_are_not_looked_at():
    assert with_loaded(ADAM, "w", {"learningRate___specific___v": torch.tensor(9.0)}, set()) == ADAM


def test_a_loaded_loss_scaling_holds():
    assert with_loaded(ADAM, "w", {"lossScaling_FLOAT": torch.tensor(8.0)}, set()).loss_scaling == 8.0
