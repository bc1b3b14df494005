"""The device's optimizers: torch's own to the last bit, PopTorch's formula where that is another."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

from porting.engines.calls.group_settings import GroupSettings, OptimizerKind
from porting.engines.update.updates import apply_update, ensure_slots, list_slots

RATE = 0.05
STEPS = 12
SHAPES = [(3, 4), (4,), (2, 4, 3, 3)]

# What both sides are asked for: the kind and settings of the device, and torch's optimizer.
EQUAL = {
    "sgd": ("SGD2", {}, lambda p: torch.optim.SGD(p, RATE)),
    "sgd with decay": ("SGD2", {"weight_decay": 0.1}, lambda p: torch.optim.SGD(p, RATE, weight_decay=0.1)),
    "sgd with momentum": ("SGD1", {"momentum": 0.9}, lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    "nesterov": (
        "SGD2",
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, RATE, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adam": ("ADAM", {}, lambda p: torch.optim.Adam(p, RATE)),
    "adam with decay": (
        "ADAM",
        {"weight_decay": 0.1, "beta1": 0.8, "beta2": 0.9, "eps": 1e-4},
        lambda p: torch.optim.Adam(p, RATE, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1),
    ),
    "adamw": ("ADAMW", {"weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.1)),
    "adamw without correction": (
        "ADAMW_NO_BIAS",
        {"weight_decay": 0.1, "bias_correction": False},
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.1),
    ),
    "rmsprop": ("RMSPROP", {}, lambda p: torch.optim.RMSprop(p, RATE)),
    "rmsprop with momentum": (
        "RMSPROP",
        {"momentum": 0.9, "weight_decay": 0.1, "alpha": 0.9},
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.9, momentum=0.9, weight_decay=0.1),
    ),
    "centered rmsprop": (
        "RMSPROP_CENTERED",
        {"centered": True},
        lambda p: torch.optim.RMSprop(p, RATE, centered=True),
    ),
    "centered rmsprop with momentum": (
        "RMSPROP_CENTERED",
        {"centered": True, "momentum": 0.5},
        lambda p: torch.optim.RMSprop(p, RATE, centered=True, momentum=0.5),
    ),
}

KINDS = [
    ("SGD2", {}),
    ("SGD2", {"momentum": 0.9, "nesterov": True}),
    ("ADAM", {}),
    ("ADAMW", {"weight_decay": 0.1}),
    ("RMSPROP", {"momentum": 0.9}),
    ("RMSPROP_CENTERED", {"centered": True}),
    ("LAMB", {"weight_decay": 0.1}),
]
each_kind = pytest.mark.parametrize(
    ("kind", "values"), KINDS, ids=lambda value: value if isinstance(value, str) else ""
)


def make_parameters(*shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return {str(index): nn.Parameter(torch.randn(shape).to(dtype)) for index, shape in enumerate(shapes or SHAPES)}


def gradients(num_steps=STEPS, shapes=SHAPES):
    torch.manual_seed(1)
    return [[torch.randn(shape) for shape in shapes] for _ in range(num_steps)]


def give(parameters, step):
    for parameter, gradient in zip(parameters.values(), step):
        parameter.grad = gradient.to(parameter.dtype, copy=True)


def train(parameters, group, *, steps=None, slots=None):
    slots = {} if slots is None else slots
    for step in gradients() if steps is None else steps:
        give(parameters, step)
        apply_update([group], [list(parameters)], parameters, slots)
    return slots


def train_with_torch(parameters, make):
    optimizer = make(list(parameters.values()))
    for step in gradients():
        give(parameters, step)
        optimizer.step()


def values_of(parameters):
    return [parameter.detach().clone() for parameter in parameters.values()]


def assert_equal(found, expected):
    assert all(torch.equal(one, other) for one, other in zip(values_of(found), values_of(expected)))


# -- torch's arithmetic


@pytest.mark.parametrize(("kind", "values", "make"), EQUAL.values(), ids=EQUAL.keys())
def test_an_update_is_torchs_to_the_last_bit(settings, kind, values, make):
    on_device, eager = make_parameters(), make_parameters()

    train(on_device, settings(kind, learning_rate=RATE, **values))
    train_with_torch(eager, make)

    assert_equal(on_device, eager)


def test_weights_in_another_memory_format_are_updated_alike(settings):
    plain, other = make_parameters((2, 4, 3, 3)), make_parameters((2, 4, 3, 3))
    other["0"].data = other["0"].detach().contiguous(memory_format=torch.channels_last)
    steps = gradients(shapes=[(2, 4, 3, 3)])

    train(plain, settings("ADAM"), steps=steps)
    train(other, settings("ADAM"), steps=steps)

    assert_equal(plain, other)


# -- PopTorch's own formulae


def test_dampening_holds_from_the_first_step_on(settings):
    parameters = make_parameters((4,))
    weight, velocity = parameters["0"].detach().clone(), torch.zeros(4)

    train(parameters, settings(momentum=0.9, dampening=0.3), steps=gradients(shapes=[(4,)]))
    for (gradient,) in gradients(shapes=[(4,)]):
        velocity = 0.9 * velocity + 0.7 * gradient
        weight = weight - 0.1 * velocity

    torch.testing.assert_close(parameters["0"].detach(), weight)


def test_dampening_holds_without_momentum(settings):
    damped, slower = make_parameters(), make_parameters()

    train(damped, settings(learning_rate=0.1, dampening=0.25))
    train(slower, settings(learning_rate=0.075))

    torch.testing.assert_close(values_of(damped), values_of(slower))


@pytest.mark.parametrize("is_corrected", [True, False])
def test_lamb_scales_adams_direction_by_the_ratio_of_norms(settings, is_corrected):
    parameters = make_parameters((3, 4))
    w, m, v = parameters["0"].detach().clone(), torch.zeros(3, 4), torch.zeros(3, 4)
    group = settings("LAMB", weight_decay=0.1, eps=1e-6, bias_correction=is_corrected, max_weight_norm=1.5)

    train(parameters, group, steps=gradients(shapes=[(3, 4)]))
    for t, (g,) in enumerate(gradients(shapes=[(3, 4)]), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        c1, c2 = (1 - 0.9**t, 1 - 0.999**t) if is_corrected else (1.0, 1.0)
        u = (m / c1) / (v.sqrt() / math.sqrt(c2) + 1e-6) + 0.1 * w
        w = w - 0.1 * w.norm().clamp(max=1.5) / u.norm() * u

    torch.testing.assert_close(parameters["0"].detach(), w, rtol=1e-5, atol=1e-5)


def test_lamb_moves_a_weight_of_zeros(settings):
    parameters = {"w": nn.Parameter(torch.zeros(4))}

    train(parameters, settings("LAMB"), steps=[[torch.ones(4)]])

    torch.testing.assert_close(parameters["w"].detach(), torch.full((4,), -0.1))


def test_the_tf_variant_of_rmsprop_starts_at_one_and_puts_eps_under_the_root(settings):
    parameters = make_parameters((4,))
    w, s, b = parameters["0"].detach().clone(), torch.ones(4), torch.zeros(4)
    group = settings("RMSPROP", momentum=0.9, alpha=0.9, eps=0.01, use_tf_variant=True)

    train(parameters, group, steps=gradients(shapes=[(4,)]))
    for (g,) in gradients(shapes=[(4,)]):
        s = 0.9 * s + 0.1 * g**2
        b = 0.9 * b + 0.1 * g / (s + 0.01).sqrt()
        w = w - b

    torch.testing.assert_close(parameters["0"].detach(), w)


# -- what holds for all


@each_kind
def test_a_learning_rate_of_zero_changes_no_bit(settings, kind, values):
    parameters, untouched = make_parameters(), make_parameters()

    train(parameters, settings(kind, learning_rate=0.0, **values))

    assert_equal(parameters, untouched)


@each_kind
def test_parameters_without_a_gradient_are_left_alone(settings, kind, values):
    parameters, untouched = make_parameters(), make_parameters()
    group = settings(kind, **{**values, "weight_decay": 0.5})
    parameters["0"].grad = torch.ones(3, 4)

    apply_update([group], [list(parameters)], parameters, {})

    assert not torch.equal(parameters["0"], untouched["0"])
    assert torch.equal(parameters["1"], untouched["1"])
    assert torch.equal(parameters["2"], untouched["2"])


@each_kind
def test_parameters_of_no_group_are_left_alone(settings, kind, values):
    parameters, untouched = make_parameters(), make_parameters()
    give(parameters, gradients()[0])

    apply_update([settings(kind, **values)], [["1"]], parameters, {})

    assert torch.equal(parameters["0"], untouched["0"])
    assert not torch.equal(parameters["1"], untouched["1"])


@each_kind
def test_gradients_are_cleared(settings, kind, values):
    parameters = make_parameters()

    train(parameters, settings(kind, **values))

    assert [parameter.grad for parameter in parameters.values()] == [None] * 3


@each_kind
def test_loss_scaling_is_neutral(settings, kind, values):
    scaled, plain = make_parameters(), make_parameters()
    larger = [[gradient * 1024 for gradient in step] for step in gradients()]

    train(scaled, settings(kind, loss_scaling=1024.0, **values), steps=larger)
    train(plain, settings(kind, **values))

    assert_equal(scaled, plain)


@each_kind
def test_half_weights_stay_half_and_follow_single_ones(settings, kind, values):
    half, single = make_parameters(dtype=torch.float16), make_parameters()
    group = settings(kind, learning_rate=0.01, **values)

    train(half, group)
    train(single, group)

    assert {parameter.dtype for parameter in half.values()} == {torch.float16}
    torch.testing.assert_close([v.float() for v in values_of(half)], values_of(single), rtol=2e-2, atol=2e-2)


@each_kind
def test_half_state_stays_half_and_follows_single_state(settings, kind, values):
    rounded, exact = make_parameters(), make_parameters()
    types = {"first_order_type": torch.float16, "second_order_type": torch.float32}

    slots = train(rounded, settings(kind, **values, **types))
    train(exact, settings(kind, **values))

    assert all(own["Accl1"].dtype == torch.float16 for own in slots.values() if own)
    torch.testing.assert_close(values_of(rounded), values_of(exact), rtol=5e-2, atol=5e-2)


def test_each_group_has_its_own_settings(settings):
    parameters, first, second = make_parameters(), make_parameters(), make_parameters()
    fast, slow = settings(learning_rate=0.5), settings(learning_rate=0.01)

    for each, groups, names in [
        (parameters, [fast, slow], [["0"], ["1", "2"]]),
        (first, [fast], [["0"]]),
        (second, [slow], [["1", "2"]]),
    ]:
        give(each, gradients()[0])
        apply_update(groups, names, each, {})

    assert torch.equal(parameters["0"], first["0"])
    assert torch.equal(parameters["1"], second["1"])


def test_a_parameter_that_sat_out_steps_is_corrected_for_its_own_number(settings):
    late, fresh = make_parameters((4,), (4,)), make_parameters((4,), (4,))
    group, gradient = settings("ADAM"), torch.ones(4)
    slots = train(late, group, steps=[[gradient]] * 5)
    late["1"].grad, fresh["1"].grad = gradient.clone(), gradient.clone()

    apply_update([group], [["0", "1"]], late, slots)
    apply_update([group], [["0", "1"]], fresh, {})

    assert torch.equal(late["1"], fresh["1"])
    assert [float(slots[name]["Step"]) for name in ("0", "1")] == [5.0, 1.0]


def test_a_gradient_that_is_zero_everywhere_is_a_gradient(settings):
    weight = nn.Parameter(torch.ones(3))
    weight.sgn().sum().backward()

    apply_update([settings(momentum=0.9)], [["w"]], {"w": weight}, {})

    assert torch.equal(weight, torch.ones(3))


# -- the norm of the gradient


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("kind", ["SGD2", "ADAM", "ADAMW"])
def test_the_norm_is_limited_as_torch_does(settings, kind, max_norm):
    clipped, expected = make_parameters(), make_parameters()
    slots = {}

    train(clipped, settings(kind, max_grad_norm=max_norm))
    for step in gradients():
        give(expected, step)
        torch.nn.utils.clip_grad_norm_(expected.values(), max_norm)
        apply_update([settings(kind)], [list(expected)], expected, slots)

    torch.testing.assert_close(values_of(clipped), values_of(expected), rtol=1e-6, atol=1e-6)


def test_the_norm_is_that_of_all_groups(settings):
    parameters, expected = make_parameters(), make_parameters()
    group = settings(max_grad_norm=0.5)
    give(parameters, gradients()[0])
    give(expected, gradients()[0])

    apply_update([group, group], [["0"], ["1", "2"]], parameters, {})
    apply_update([group], [["0", "1", "2"]], expected, {})

    assert_equal(parameters, expected)


def test_the_norm_is_that_of_the_unscaled_gradient(settings):
    scaled, plain = make_parameters(), make_parameters()
    give(scaled, [gradient * 64 for gradient in gradients()[0]])
    give(plain, gradients()[0])

    apply_update([settings(max_grad_norm=0.5, loss_scaling=64.0)], [list(scaled)], scaled, {})
    apply_update([settings(max_grad_norm=0.5)], [list(plain)], plain, {})

    assert_equal(scaled, plain)


# -- state


@pytest.mark.parametrize(
    ("kind", "values", "names"),
    [
        ("SGD2", {}, ()),
        ("SGD1", {"momentum": 0.9}, ("Accl1",)),
        ("ADAM", {}, ("Accl1", "Accl2", "Step")),
        ("ADAMW_NO_BIAS", {}, ("Accl1", "Accl2", "Step")),
        ("LAMB_NO_BIAS", {}, ("Accl1", "Accl2", "Step")),
        ("RMSPROP", {}, ("Accl1",)),
        ("RMSPROP", {"momentum": 0.9}, ("Accl1", "Accl2")),
        ("RMSPROP_CENTERED", {"centered": True, "momentum": 0.9}, ("Accl1", "Accl2", "Accl3")),
    ],
)
def test_each_kind_keeps_the_state_it_needs(settings, kind, values, names):
    assert list_slots(settings(kind, **values)) == names


def test_state_that_is_there_is_kept(settings):
    parameters = make_parameters((4,))
    slots = {"0": {"Accl1": torch.full((4,), 7.0)}}

    ensure_slots(settings("ADAM"), ["0"], parameters, slots)

    assert set(slots["0"]) == {"Accl1", "Accl2", "Step"}
    assert torch.equal(slots["0"]["Accl1"], torch.full((4,), 7.0))


def test_an_unknown_kind_is_a_value_error(settings):
    with pytest.raises(ValueError, match="unknown optimizer kind ADAGRAD"):
        list_slots(settings("ADAGRAD"))


# -- on the way from the backward pass to the arithmetic


def test_a_half_accumulator_rounds_the_gradient(settings):
    parameters = {"0": nn.Parameter(torch.zeros(1))}
    give(parameters, [torch.tensor([1.0 + 2.0**-12])])

    apply_update([settings(learning_rate=1.0, accum_type=torch.half)], [["0"]], parameters, {})

    assert parameters["0"].item() == -1.0


def test_a_half_accumulator_overflows(settings):
    parameters = {"0": nn.Parameter(torch.zeros(1))}
    give(parameters, [torch.tensor([1e5])])

    apply_update([settings(accum_type=torch.half)], [["0"]], parameters, {})

    assert parameters["0"].item() == -math.inf


def test_gradients_are_exchanged_before_they_are_clipped(settings):
    parameters = {"0": nn.Parameter(torch.zeros(1))}
    give(parameters, [torch.tensor([0.75])])

    apply_update(
        [settings(learning_rate=1.0, max_grad_norm=1.0)],
        [["0"]],
        parameters,
        {},
        exchange=lambda gradients: torch._foreach_mul_(gradients, 2.0),
    )

    assert parameters["0"].item() == pytest.approx(-1.0, abs=1e-5)


def test_gradients_are_shown_while_they_are_scaled(settings):
    parameters, seen = {"0": nn.Parameter(torch.zeros(1))}, []
    give(parameters, [torch.tensor([8.0])])

    apply_update(
        [settings(learning_rate=1.0, loss_scaling=2.0)],
        [["0"]],
        parameters,
        {},
        loss_scaling=4.0,
        observe=lambda gradients: seen.extend(gradient.item() for gradient in gradients),
    )

    assert seen == [8.0]
    assert parameters["0"].item() == -2.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rounding_at_random_is_right_on_average(settings, sign):
    parameters = {"0": nn.Parameter(torch.full((10_000,), sign, dtype=torch.half))}
    give(parameters, [torch.full((10_000,), sign * 2.0**-13)])
    torch.manual_seed(0)

    apply_update([settings(learning_rate=1.0)], [["0"]], parameters, {}, rounds_at_random=True)

    weights = parameters["0"].detach().float()
    assert set((weights * sign).tolist()) == {1.0, 1.0 - 2.0**-11}
    assert (weights * sign).mean().item() == pytest.approx(1.0 - 2.0**-13, abs=2.0**-16)


def test_rounding_at_random_leaves_what_is_exact_and_what_is_single(settings):
    parameters = {"0": nn.Parameter(torch.ones(50, dtype=torch.half)), "1": nn.Parameter(torch.ones(50))}
    give(parameters, [torch.full((50,), 0.5), torch.full((50,), 1e-7)])

    apply_update([settings(learning_rate=1.0)], [["0", "1"]], parameters, {}, rounds_at_random=True)

    assert parameters["0"].unique().tolist() == [0.5]
    assert len(parameters["1"].unique()) == 1


def test_rounding_at_random_makes_no_infinity(settings):
    highest = torch.finfo(torch.half).max
    parameters = {"0": nn.Parameter(torch.full((1000,), highest, dtype=torch.half))}
    give(parameters, [torch.full((1000,), -8.0)])

    apply_update([settings(learning_rate=1.0)], [["0"]], parameters, {}, rounds_at_random=True)

    assert parameters["0"].unique().tolist() == [highest]


SETTINGS = GroupSettings(kind=OptimizerKind.SGD1, learning_rate=0.1)


def test_settings_are_equal_whatever_their_parameters_are():
    assert SETTINGS == dataclasses.replace(SETTINGS, params=(torch.zeros(2),))


def test_another_kind_of_optimizer_makes_other_settings():
    assert SETTINGS != dataclasses.replace(SETTINGS, kind=OptimizerKind.SGD2)
