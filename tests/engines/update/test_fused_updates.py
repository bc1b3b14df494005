"""Torch's fused kernels give the device's update, and are left alone where they would not."""

from __future__ import annotations

import pytest
import torch

from porting.engines.update.updates import apply_update, ensure_slots, find_fused_arithmetic, find_optimizer_family

SHAPES = [(3, 4), (4,), (2, 4, 3, 3)]

FUSED = {
    "sgd": ("SGD2", {}),
    "sgd with decay": ("SGD2", {"weight_decay": 0.1}),
    "damped sgd without momentum": ("SGD2", {"dampening": 0.3}),
    "sgd with momentum": ("SGD1", {"momentum": 0.9}),
    "damped momentum": ("SGD2", {"momentum": 0.9, "dampening": 0.3}),
    "nesterov": ("SGD2", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": ("ADAM", {}),
    "adam with decay": ("ADAM", {"weight_decay": 0.1, "eps": 1e-3}),
    "adamw": ("ADAMW", {"weight_decay": 0.1}),
    "adamw without correction": ("ADAMW_NO_BIAS", {"weight_decay": 0.1, "bias_correction": False}),
    "clipped": ("ADAM", {"max_grad_norm": 0.5}),
    "scaled": ("SGD2", {"loss_scaling": 128.0, "momentum": 0.9}),
}


def trained(settings, *, is_fused, dtype=torch.float32, memory_format=torch.contiguous_format, steps=5):
    generator = torch.Generator().manual_seed(0)
    parameters = {}
    for number, shape in enumerate(SHAPES):
        weight = torch.randn(shape, generator=generator).to(dtype)
        wanted = memory_format if len(shape) == 4 else torch.contiguous_format
        parameters[str(number)] = weight.contiguous(memory_format=wanted).requires_grad_()
    slots = {}
    ensure_slots(settings, list(parameters), parameters, slots)
    for _ in range(steps):
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)
        apply_update([settings], [list(parameters)], parameters, slots, is_fused=is_fused)
    return {name: parameter.detach() for name, parameter in parameters.items()}, slots


@pytest.mark.parametrize(("kind", "values"), FUSED.values(), ids=FUSED.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_fused_update_is_the_plain_one(kind, values, dtype, settings):
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-3, "atol": 2e-3}

    weights, slots = trained(settings(kind, **values), is_fused=True, dtype=dtype)
    expected_weights, expected_slots = trained(settings(kind, **values), is_fused=False, dtype=dtype)

    torch.testing.assert_close(weights, expected_weights, **tolerance)
    torch.testing.assert_close(slots, expected_slots, **tolerance)


def test_gradients_in_another_order_than_their_weights_are_not_mixed_up(settings):
    weights, _slots = trained(settings("ADAM"), is_fused=True, memory_format=torch.channels_last)
    expected, _slots = trained(settings("ADAM"), is_fused=False)

    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("kind", ["LAMB", "RMSPROP"])
def test_an_optimizer_without_a_fused_kernel_has_none(kind, settings):
    weight = torch.ones(2)

    assert find_fused_arithmetic(find_optimizer_family(settings(kind)), [weight], [weight], {}) is None


def test_weights_and_gradients_in_step_have_a_fused_form():
    weight = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)

    assert find_fused_arithmetic("SGD", [weight], [weight.clone()], {}) is not None
    assert find_fused_arithmetic("SGD", [weight], [weight.contiguous()], {}) is None
