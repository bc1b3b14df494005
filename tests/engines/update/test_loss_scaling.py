"""The factor of the loss scaling follows the size of the gradients."""

from __future__ import annotations

import math

import pytest
import torch

from porting.engines.calls.device_state import DeviceState
from porting.engines.update.updates import adapt_loss_scaling


def adapted(gradient, *, scaling=4.0, factor=1.0):
    state = DeviceState({}, [{}], loss_scale_factor=torch.tensor(factor), final_loss_scale=scaling)
    adapt_loss_scaling(state, [torch.zeros(3), torch.tensor([gradient])])
    return state.loss_scale_factor.item()


@pytest.mark.parametrize("gradient", [0.0, 1.0, -8000.0])
def test_small_gradients_double_the_factor(gradient):
    assert adapted(gradient, factor=2.0) == 4.0


@pytest.mark.parametrize("gradient", [9000.0, -9000.0, math.inf, math.nan])
def test_gradients_near_the_top_of_half_precision_halve_it(gradient):
    assert adapted(gradient, factor=2.0) == 1.0


@pytest.mark.parametrize(("scaling", "factor"), [(16384.0, 2.0), (32752.0, 2.0), (32768.0, 1.0), (65504.0, 1.0)])
def test_the_scaling_stays_what_half_precision_can_hold(scaling, factor):
    assert adapted(1.0, scaling=scaling) == factor


def test_a_few_large_elements_among_very_many_do_not_count():
    state = DeviceState({}, [{}], loss_scale_factor=torch.tensor(1.0))
    gradient = torch.zeros(20_000_000)
    gradient[0] = 60000.0

    adapt_loss_scaling(state, [gradient])

    assert state.loss_scale_factor.item() == 2.0
