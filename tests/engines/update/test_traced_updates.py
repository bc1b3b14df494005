"""The arithmetic of a compiled update is that of the engine's own, for any numbers."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from porting.engines.update.traced_updates import (
    compute_group_hyper_parameters,
    compute_step_hyper_parameters,
    compute_update,
    describe_update,
    list_hyper_parameters,
)
from porting.engines.update.updates import apply_update, compute_clip_factor, ensure_slots

OPTIMIZERS = {
    "sgd": ("SGD1", {"dampening": 0.3}),
    "sgd with momentum": ("SGD2", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "nesterov": ("SGD2", {"momentum": 0.9, "nesterov": True}),
    "adam": ("ADAM", {"weight_decay": 0.1}),
    "adam without decay": ("ADAM_NO_BIAS", {}),
    "adamw": ("ADAMW", {"weight_decay": 0.1, "bias_correction": False}),
    "rmsprop": ("RMSPROP", {"weight_decay": 0.1}),
    "rmsprop with momentum": ("RMSPROP", {"momentum": 0.9}),
    "rmsprop around the mean": ("RMSPROP", {"centered": True, "momentum": 0.5}),
    "rmsprop of tf": ("RMSPROP", {"use_tf_variant": True, "momentum": 0.5, "centered": True}),
    "lamb": ("LAMB", {"weight_decay": 0.1, "max_weight_norm": 0.5}),
    "lamb without correction": ("LAMB", {"bias_correction": False}),
}
each_optimizer = pytest.mark.parametrize(("kind", "values"), OPTIMIZERS.values(), ids=OPTIMIZERS.keys())

few_examples = hypothesis.settings(max_examples=20, deadline=None)
rates = st.floats(1e-4, 0.5)
betas = st.floats(0.5, 0.999)


class Parameter:
    """One weight that is updated both ways."""

    def __init__(self, settings, dtype=torch.float32, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(4, 3, generator=self.generator).to(dtype)
        self.slots = {}
        self.reference, self.reference_slots = {"w": self.weight.clone()}, {}
        ensure_slots(settings, ["w"], {"w": self.weight}, self.slots)
        self.count = 0

    def update(self, settings):
        """Make one step by both, as a program would: clipped and scaled, results rounded when they are stored."""
        gradient = torch.randn(4, 3, generator=self.generator).to(self.weight.dtype)
        self.reference["w"].grad = gradient * settings.loss_scaling
        apply_update([settings], [["w"]], self.reference, self.reference_slots)
        structure = describe_update(settings)
        self.count += 1
        numbers = torch.tensor(compute_group_hyper_parameters(settings, structure, count=self.count))
        _seed, scale, max_norm = torch.tensor(
            compute_step_hyper_parameters([settings], backward_scale=1.0, update_scale=1.0)
        )
        single = (gradient * settings.loss_scaling).float() * scale
        if structure["clips"]:
            single = single * compute_clip_factor(torch.stack([single.norm()]), max_norm)
        own = {name: tensor for name, tensor in self.slots["w"].items() if name != "Step"}
        names = list_hyper_parameters(structure)
        weight, slots = compute_update(structure, self.weight, single, own, dict(zip(names, numbers)))
        self.weight.copy_(weight)
        for name, value in slots.items():
            own[name].copy_(value)
        self.slots["w"].get("Step", torch.zeros(())).add_(1.0)

    def assert_equal(self, **tolerance):
        torch.testing.assert_close(self.weight, self.reference["w"], **tolerance)
        torch.testing.assert_close(self.slots, self.reference_slots, **tolerance)


@each_optimizer
@few_examples
@given(rate=rates, beta1=betas, beta2=betas, seed=st.integers(0, 2**16))
def test_several_steps_lead_to_the_same_weights_and_slots(settings, kind, values, rate, beta1, beta2, seed):
    group = settings(kind, learning_rate=rate, beta1=beta1, beta2=beta2, alpha=beta2, eps=1e-3, **values)
    parameter = Parameter(group, seed=seed)

    for _ in range(3):
        parameter.update(group)

    parameter.assert_equal(rtol=1e-5, atol=1e-6)


@each_optimizer
def test_gradients_are_unscaled_and_clipped_first(settings, kind, values):
    group = settings(kind, loss_scaling=64.0, max_grad_norm=0.5, eps=1e-3, **values)
    parameter = Parameter(group)

    for _ in range(2):
        parameter.update(group)

    parameter.assert_equal(rtol=1e-5, atol=1e-6)


@each_optimizer
def test_half_precision_is_rounded_when_it_is_stored(settings, kind, values):
    group = settings(kind, first_order_type=torch.float16, second_order_type=torch.float32, eps=1e-3, **values)
    parameter = Parameter(group, dtype=torch.float16)

    for _ in range(3):
        parameter.update(group)

    parameter.assert_equal(rtol=2e-3, atol=1e-3)


@each_optimizer
def test_there_is_a_number_for_each_name(settings, kind, values):
    group = settings(kind, **values)
    structure = describe_update(group)

    assert len(compute_group_hyper_parameters(group, structure, count=1)) == len(list_hyper_parameters(structure))


@each_optimizer
def test_numbers_that_say_they_stay_do_not_depend_on_the_count(settings, kind, values):
    group = settings(kind, **values)
    structure = describe_update(group)

    same = compute_group_hyper_parameters(group, structure, count=1) == compute_group_hyper_parameters(
        group, structure, count=2
    )

    assert same is not structure["bias_correction"]


def test_numbers_are_no_part_of_the_structure(settings):
    one = describe_update(settings("ADAM", learning_rate=0.1, weight_decay=0.1, beta1=0.9))
    other = describe_update(settings("ADAM", learning_rate=0.2, weight_decay=0.3, beta1=0.8))

    assert one == other


@pytest.mark.parametrize(
    "values",
    [
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"nesterov": True},
        {"max_grad_norm": 1.0},
        {"accum_type": torch.float16},
        {"first_order_type": torch.float16},
    ],
)
def test_what_needs_other_operators_is_part_of_the_structure(settings, values):
    assert describe_update(settings("SGD2", **values)) != describe_update(settings("SGD2"))


def test_a_loss_scaling_is_undone_in_the_gradient(settings):
    seed, scale, _max_norm = compute_step_hyper_parameters(
        [settings(loss_scaling=8.0)], backward_scale=0.5, update_scale=2.0
    )

    assert (seed, scale) == (4.0, 0.25)
