"""PopTorch's optimizers on the CPU: signatures, defaults, steps equal to torch's, and the state for the device."""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import numpy as np
import pytest
import torch

from porting.simulator import optim

CLASSES = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB]
MOMENTS = ["accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type"]
SIGNATURES = {
    optim.SGD: [
        *["params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach"],
        *["differentiable", "loss_scaling", "velocity_scaling", "use_combined_accum", "accum_type"],
        *["velocity_accum_type", "max_grad_norm"],
    ],
    optim.Adam: [
        *["params", "lr", "betas", "eps", "weight_decay", "amsgrad", "foreach", "maximize", "capturable"],
        *["differentiable", "fused", "loss_scaling", *MOMENTS, "max_grad_norm"],
    ],
    optim.AdamW: [
        *["params", "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable"],
        *["differentiable", "fused", "loss_scaling", "bias_correction", *MOMENTS, "max_grad_norm"],
    ],
    optim.RMSprop: [
        *["params", "lr", "alpha", "eps", "weight_decay", "momentum", "centered", "foreach", "maximize"],
        *["differentiable", "loss_scaling", *MOMENTS, "use_tf_variant"],
    ],
    optim.LAMB: [
        *["params", "lr", "betas", "eps", "weight_decay", "bias_correction", "loss_scaling", "max_weight_norm"],
        *MOMENTS,
    ],
}


def weights() -> list:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size, generator=generator)) for size in [(3, 4), (4,)]]


def train(optimizer, parameters, num_steps: int = 10) -> list:
    target = torch.arange(4.0)
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = sum(((weight - target) ** 2).sum() for weight in parameters)
        loss.backward()
        optimizer.step()
    return [weight.detach().clone() for weight in parameters]


def build(cls, **settings):
    return cls(weights(), **{"lr": 0.1, **settings})


# -- construction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_have_the_order_of_poptorch(cls):
    assert list(inspect.signature(cls).parameters) == SIGNATURES[cls]


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_left_out_are_none(cls):
    parameters = list(inspect.signature(cls).parameters.values())
    optional = parameters[2:] if cls is optim.SGD else parameters[1:]

    assert [parameter.default for parameter in optional] == [None] * len(optional)


def test_learning_rate_of_sgd_is_mandatory_and_second():
    with pytest.raises(TypeError, match="lr"):
        optim.SGD(weights())

    assert optim.SGD(weights(), 0.5).param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("cls", "plain"),
    [
        (optim.SGD, torch.optim.SGD),
        (optim.Adam, torch.optim.Adam),
        (optim.AdamW, torch.optim.AdamW),
        (optim.RMSprop, torch.optim.RMSprop),
    ],
)
def test_defaults_are_those_of_torch(cls, plain):
    assert build(cls).defaults == build(plain).defaults
    assert cls.__bases__ == (optim.Optimizer, plain)


def test_defaults_of_lamb():
    assert optim.LAMB(weights()).defaults == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 1e-2,
        "max_weight_norm": 65500.0,
    }


@pytest.mark.parametrize("cls", CLASSES)
def test_extra_arguments_have_neutral_defaults(cls):
    neutral = {
        "loss_scaling": 1.0,
        "velocity_scaling": 1.0,
        "use_combined_accum": False,
        "use_tf_variant": False,
        "bias_correction": True,
        "max_grad_norm": math.inf,
    }
    optimizer = build(cls)

    extra = {name: getattr(optimizer, name) for name in cls._child_only}

    assert extra == {name: neutral.get(name, torch.float32) for name in cls._child_only}


@pytest.mark.parametrize(
    ("cls", "name"),
    [(cls, name) for cls in CLASSES for name in cls._child_only if name.endswith("accum_type")],
)
def test_accumulation_types_are_half_or_float(cls, name):
    assert getattr(build(cls, **{name: torch.float16}), name) == torch.float16
    with pytest.raises(AssertionError, match=r"Accumulation types must be either torch\.float32 or torch\.float16"):
        build(cls, **{name: torch.bfloat16})


def test_velocity_scaling_is_a_group_setting_of_the_combined_accumulator_only():
    groups = [{"params": weights()}, {"params": weights(), "velocity_scaling": 4.0}]

    combined = optim.SGD(groups, lr=0.1, use_combined_accum=True, velocity_scaling=2.0)

    assert combined.defaults["velocity_scaling"] == 2.0
    assert [group["velocity_scaling"] for group in combined.param_groups] == [2.0, 4.0]
    assert "velocity_scaling" not in build(optim.SGD).param_groups[0]


def test_velocity_scaling_without_the_combined_accumulator_is_said_to_be_ignored(caplog):
    build(optim.SGD, velocity_scaling=2.0)

    assert "velocity_scaling value ignored when using the separate variant (use_combined_accum=False)" in caplog.text


# -- which settings may change -------------------------------------------------------------------------------------


def test_arguments_that_were_passed_are_variable():
    attributes = build(optim.SGD, momentum=0.0, loss_scaling=2.0).variable_attrs

    passed = [name for name in SIGNATURES[optim.SGD] if not attributes.isConstant(name)]
    assert passed == ["params", "lr", "momentum", "loss_scaling"]


def test_unknown_setting_is_constant():
    assert optim.VariableAttributes([], []).isConstant("wibble")


def test_marked_setting_changes_sides():
    attributes = build(optim.Adam).variable_attrs

    attributes.markAsVariable("betas")
    attributes.markAsVariable("betas")
    attributes.markAsConstant("lr")
    attributes.markAsConstant("lr")

    assert attributes._variable_attributes == ["params", "betas"]


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_and_loss_scaling_can_be_marked(cls):
    optimizer = build(cls)

    assert optimizer.variable_attrs._allowed_attributes == [*optimizer.defaults, "loss_scaling"]


@pytest.mark.parametrize("method", ["markAsConstant", "markAsVariable"])
def test_unknown_setting_cannot_be_marked(method):
    with pytest.raises(AssertionError, match=r"Unknown attribute wibble, allowed values: \['lr'\]"):
        getattr(optim.VariableAttributes([], ["lr"]), method)("wibble")


# -- steps on the CPU ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
        ("Adam", {}),
        ("Adam", {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
        ("AdamW", {}),
        ("AdamW", {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
        ("RMSprop", {}),
        ("RMSprop", {"alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9, "centered": True}),
    ],
)
def test_steps_equal_those_of_torch(name, settings):
    ours, theirs = weights(), weights()

    after = train(getattr(optim, name)(ours, lr=0.1, **settings), ours)

    expected = train(getattr(torch.optim, name)(theirs, lr=0.1, **settings), theirs)
    assert all(torch.equal(a, b) for a, b in zip(after, expected))


def lamb_by_formula(weight, *, lr, betas, eps, weight_decay, bias_correction, max_weight_norm, num_steps=10):
    """Compute LAMB in float64 straight from its definition, on the loss of `train`."""
    w = weight.detach().double().numpy().copy()
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, num_steps + 1):
        g = 2 * (w - np.arange(4.0))
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        c1, c2 = (1 - betas[0] ** t, 1 - betas[1] ** t) if bias_correction else (1.0, 1.0)
        u = (m / c1) / (np.sqrt(v) / np.sqrt(c2) + eps) + weight_decay * w
        r1, r2 = min(np.linalg.norm(w), max_weight_norm), np.linalg.norm(u)
        w -= lr * (r1 / r2 if r1 > 0 and r2 > 0 else 1.0) * u
    return w


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("max_weight_norm", [65500.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lamb_equals_its_formula(bias_correction, max_weight_norm, weight_decay):
    settings = {
        "lr": 0.02,
        "betas": (0.8, 0.95),
        "eps": 1e-6,
        "weight_decay": weight_decay,
        "bias_correction": bias_correction,
        "max_weight_norm": max_weight_norm,
    }
    parameters = weights()
    expected = [lamb_by_formula(weight, **settings) for weight in parameters]

    after = train(optim.LAMB(parameters, **settings), parameters)

    for weight, by_formula in zip(after, expected):
        np.testing.assert_allclose(weight.numpy(), by_formula, rtol=1e-5, atol=1e-6)


def test_lamb_moves_weights_that_are_zero():
    weight = torch.nn.Parameter(torch.zeros(4))

    after = train(optim.LAMB([weight], lr=0.1, weight_decay=0.0), [weight], num_steps=1)

    # The direction of a first step is the gradient's sign; zero weights have a trust ratio of 1.
    torch.testing.assert_close(after[0], torch.tensor([0.0, 0.1, 0.1, 0.1]))


def test_lamb_leaves_weights_without_a_gradient_alone():
    trained, other = weights()
    before = other.detach().clone()

    train(optim.LAMB([trained, other], lr=0.1), [trained])

    assert torch.equal(other, before)


def test_lamb_refuses_sparse_gradients():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = optim.LAMB(embedding.parameters())
    embedding(torch.tensor([1])).sum().backward()

    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()


def test_lamb_returns_the_loss_of_its_closure():
    parameters = weights()
    optimizer = optim.LAMB(parameters)

    def closure():
        loss = parameters[0].sum()
        loss.backward()
        return loss

    assert torch.equal(optimizer.step(closure), weights()[0].sum())


@pytest.mark.parametrize("cls", CLASSES)
def test_scheduler_changes_the_learning_rate(cls):
    parameters = weights()
    optimizer = cls(parameters, lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    train(optimizer, parameters, num_steps=1)
    scheduler.step()

    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


# -- state for the device ------------------------------------------------------------------------------------------

DEVICE_STATE = {"Accl1___lin.weight": torch.ones(2)}
DEVICE_PARAM = {"lossScaling_FLOAT": torch.ones(1)}


@pytest.mark.parametrize("cls", CLASSES)
def test_state_has_the_devices_part_and_torchs(cls):
    state = build(cls).state_dict()

    assert sorted(state) == ["ipu_param", "ipu_state", "param_groups", "state"]
    assert (state["ipu_param"], state["ipu_state"]) == (None, None)


@pytest.mark.parametrize("cls", CLASSES)
def test_loaded_state_is_returned_and_waits_for_the_device(cls):
    optimizer = build(cls)
    state = {**build(cls, lr=0.7).state_dict(), "ipu_state": DEVICE_STATE, "ipu_param": DEVICE_PARAM}

    optimizer.load_state_dict(state)

    assert optimizer.state_dict() == state
    assert optimizer.param_groups[0]["lr"] == 0.7
    assert optimizer.has_state()
    assert (optimizer.ipu_state_is_dirty, optimizer.host_state_is_dirty) == (True, False)


@pytest.mark.parametrize("cls", CLASSES)
def test_host_state_round_trips_with_the_devices(cls):
    parameters = weights()
    optimizer = cls(parameters, lr=0.1)
    train(optimizer, parameters, num_steps=2)
    saved = copy.deepcopy(optimizer.state_dict())
    expected = train(optimizer, parameters, num_steps=2)

    again = weights()
    other = cls(again, lr=0.1)
    train(other, again, num_steps=2)
    other.load_state_dict(saved)

    assert all(torch.equal(a, b) for a, b in zip(train(other, again, num_steps=2), expected))


def test_state_without_the_devices_part_is_refused_after_torchs_part_was_taken_over():
    optimizer = build(optim.Adam)
    plain = torch.optim.Adam(weights(), lr=0.9).state_dict()

    with pytest.raises(RuntimeError, match=r"Only IPU optimizer states can be loaded onto the IPU\."):
        optimizer.load_state_dict(plain)

    assert optimizer.param_groups[0]["lr"] == 0.9


def test_empty_state_is_refused():
    with pytest.raises(RuntimeError, match=r"Cannot load optimizer state dictionary because it is empty\."):
        build(optim.SGD).set_state_dict({})


def test_torch_refuses_to_load_an_empty_state_first():
    with pytest.raises(KeyError, match="param_groups"):
        build(optim.SGD).load_state_dict({})


def test_has_no_state_while_one_part_is_missing():
    optimizer = build(optim.SGD)

    optimizer.set_state_dict({"ipu_state": DEVICE_STATE, "ipu_param": None})

    assert not optimizer.has_state()


# -- copies --------------------------------------------------------------------------------------------------------

COPIES = [copy.copy, copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("duplicate", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copies_keep_the_extra_settings(cls, duplicate):
    optimizer = build(cls, loss_scaling=8.0, accum_type=torch.float16)

    again = duplicate(optimizer)

    assert {name: getattr(again, name) for name in cls._child_only} == {
        name: getattr(optimizer, name) for name in cls._child_only
    }
    assert vars(again.variable_attrs) == vars(optimizer.variable_attrs)


@pytest.mark.parametrize("duplicate", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copies_of_lamb_keep_its_weight_norm(duplicate):
    assert duplicate(build(optim.LAMB, max_weight_norm=3.0)).max_weight_norm == 3.0


@pytest.mark.parametrize("duplicate", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copies_upload_the_state_again(duplicate):
    optimizer = build(optim.SGD)
    optimizer.set_state_dict({"ipu_state": DEVICE_STATE, "ipu_param": DEVICE_PARAM})
    optimizer.ipu_state_is_dirty, optimizer.host_state_is_dirty = False, True

    again = duplicate(optimizer)

    assert (again.ipu_state_is_dirty, again.host_state_is_dirty) == (True, False)
    assert again.state_dict()["ipu_param"] == DEVICE_PARAM


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_copies_drop_an_executors_hold_on_the_state(duplicate):
    optimizer = build(optim.SGD)
    optimizer.state_dict = lambda: "of the executor"

    assert "state_dict" not in vars(duplicate(optimizer))


@pytest.mark.parametrize("cls", CLASSES)
def test_unpickled_optimizers_can_step(cls):
    again = pickle.loads(pickle.dumps(build(cls)))
    parameters = again.param_groups[0]["params"]

    assert not torch.equal(train(again, parameters, num_steps=1)[0], weights()[0])


@pytest.mark.parametrize("cls", [optim.Adam, optim.AdamW])
def test_betas_stay_what_was_passed(cls):
    first, second = ([torch.nn.Parameter(torch.ones(1))] for _ in range(2))

    optimizer = cls([{"params": first}, {"params": second, "betas": (0.5, 0.6)}], betas=[0.9, 0.99])

    assert [group["betas"] for group in optimizer.param_groups] == [[0.9, 0.99], (0.5, 0.6)]
    assert optimizer.defaults["betas"] == [0.9, 0.99]
