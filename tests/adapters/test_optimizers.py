"""The device's optimizer does what torch's would have done: settings, groups, and the right refusals."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.loss import LossInForward
from porting.adapters.optimizers import (
    SUPPORTED_OPTIMIZERS,
    default_optimizer,
    sync_hyper_parameters,
    to_backend_optimizer,
)
from porting.diagnostics import OptionError, PortingWarning, UnsupportedOptimizerError

# name: class and arguments. Adding a line puts an optimizer through all tests of equality.
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD with weight decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    "SGD with momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "SGD with Nesterov's momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "SGD with dampening, which has no effect": (torch.optim.SGD, {"lr": 0.1, "dampening": 0.5}),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "Adam with all settings": (
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1},
    ),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "AdamW without decay": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.0}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01}),
    "RMSprop with all settings": (
        torch.optim.RMSprop,
        {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.5, "centered": True},
    ),
    "a tensor as learning rate": (torch.optim.Adam, {"lr": torch.tensor(0.01)}),
    "settings of the implementation": (torch.optim.Adam, {"lr": 0.01, "foreach": True}),
}
NUM_STEPS = 6


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def batches(count=NUM_STEPS):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 4, generator=generator), torch.arange(5) % 3) for _ in range(count)]


def train_eagerly(model, optimizer, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_on_device(model, optimizer, data, poptorch):
    wrapped = LossInForward(model, F.cross_entropy, backend=poptorch)
    converted = to_backend_optimizer(optimizer, wrapped, backend=poptorch)
    executor = poptorch.trainingModel(wrapped, optimizer=converted)
    losses = [executor(x, y)[1] for x, y in data]
    executor.destroy()
    return losses, converted


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_on_the_device_equals_training_with_torch(name, poptorch):
    kind, arguments = OPTIMIZERS[name]
    plain, model = make_model(), make_model()

    losses, _ = train_on_device(model, kind(model.parameters(), **arguments), batches(), poptorch)

    expected = train_eagerly(plain, kind(plain.parameters(), **arguments), batches())
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_where_torch_stopped(name, poptorch):
    kind, arguments = OPTIMIZERS[name]
    plain, model = make_model(), make_model()
    optimizer = kind(model.parameters(), **arguments)
    train_eagerly(model, optimizer, batches()[:3])

    losses, _ = train_on_device(model, optimizer, batches()[3:], poptorch)

    expected = train_eagerly(plain, kind(plain.parameters(), **arguments), batches())
    torch.testing.assert_close(losses, expected[3:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", list(SUPPORTED_OPTIMIZERS))
def test_every_group_keeps_its_own_settings(kind, poptorch):
    plain, model = make_model(), make_model()

    def optimizer(net):
        groups = [
            {"params": list(net[0].parameters()), "lr": 0.05, "weight_decay": 0.1},
            {"params": [net[2].weight], "lr": 0.01},
        ]
        return kind(groups, lr=0.02)

    losses, _ = train_on_device(model, optimizer(model), batches(), poptorch)

    expected = train_eagerly(plain, optimizer(plain), batches())
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(model[2].bias, make_model()[2].bias)


@pytest.mark.parametrize(("kind", "name"), list(SUPPORTED_OPTIMIZERS.items()))
def test_each_class_has_its_counterpart(kind, name, poptorch):
    model = make_model()

    converted = to_backend_optimizer(kind(model.parameters(), lr=0.1), model, backend=poptorch)

    assert type(converted) is getattr(poptorch.optim, name)
    assert not converted.variable_attrs.isConstant("lr")


def test_adam_with_decoupled_decay_is_adamw(poptorch):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1)
    optimizer.param_groups[0]["decoupled_weight_decay"] = True  # an argument from torch 2.7 on

    converted = to_backend_optimizer(optimizer, model, backend=poptorch)

    assert type(converted) is poptorch.optim.AdamW


def test_what_has_no_effect_is_compiled_in(poptorch):
    model = make_model()

    converted = to_backend_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, backend=poptorch)

    assert converted.variable_attrs.isConstant("momentum")
    assert converted.variable_attrs.isConstant("weight_decay")


def test_the_users_optimizer_is_left_as_it_is(poptorch):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train_eagerly(model, optimizer, batches(1))
    before = copy.deepcopy(optimizer.state_dict())

    train_on_device(model, optimizer, batches(), poptorch)

    torch.testing.assert_close(optimizer.state_dict(), before)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"])
def test_an_optimizer_of_the_device_is_taken_as_it_is(name, poptorch):
    model = make_model()
    optimizer = getattr(poptorch.optim, name)(model.parameters(), lr=0.1)

    assert to_backend_optimizer(optimizer, model, backend=poptorch) is optimizer


def test_the_default_is_poptorchs_own(poptorch):
    optimizer = default_optimizer(make_model(), backend=poptorch)

    assert type(optimizer) is poptorch.optim.SGD
    assert optimizer.param_groups[0]["lr"] == 0.01


# -- refusals ------------------------------------------------------------------------------------------------------


class MyAdam(torch.optim.Adam):
    pass


@pytest.mark.parametrize(
    ("make", "message", "remedy"),
    [
        (lambda p: torch.optim.Adagrad(p), "`Adagrad` has no counterpart on the device", "torch.optim.RMSprop"),
        (lambda p: torch.optim.NAdam(p), "`NAdam` has no counterpart on the device", "torch.optim.Adam"),
        (lambda p: torch.optim.LBFGS(p), "`LBFGS` has no counterpart on the device", "torch.optim.SGD"),
        (lambda p: MyAdam(p), "`MyAdam` is a class of its own, derived from Adam", "torch.optim.Adam"),
        (lambda p: torch.optim.Adam, "`optimizer` is the class Adam", "pass an instance"),
        (lambda p: "adam", "`optimizer` is a str", "pass an instance"),
    ],
)
def test_an_optimizer_without_counterpart_is_refused_by_name(make, message, remedy, poptorch):
    model = make_model()

    with pytest.raises(UnsupportedOptimizerError) as caught:
        to_backend_optimizer(make(model.parameters()), model, backend=poptorch)

    assert caught.value.code == "O001"
    assert caught.value.finding.message == message
    assert remedy in caught.value.finding.help[0]
    assert "SGD, Adam, AdamW, RMSprop, LAMB" in caught.value.finding.notes[0]


def test_a_class_derived_from_the_devices_own_is_refused(poptorch):
    class Mine(poptorch.optim.SGD):
        pass

    model = make_model()

    with pytest.raises(UnsupportedOptimizerError, match="`Mine` is a class of its own"):
        to_backend_optimizer(Mine(model.parameters(), lr=0.1), model, backend=poptorch)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [(torch.optim.Adam, "amsgrad"), (torch.optim.AdamW, "amsgrad"), (torch.optim.SGD, "maximize")],
)
def test_a_setting_that_the_device_does_not_have_is_refused(kind, setting, poptorch):
    model = make_model()

    with pytest.raises(UnsupportedOptimizerError, match=f"`{setting}=True` has no counterpart") as caught:
        to_backend_optimizer(kind(model.parameters(), lr=0.1, **{setting: True}), model, backend=poptorch)

    assert caught.value.code == "O002"


def test_groups_that_differ_in_what_must_be_the_same_are_refused(poptorch):
    model = make_model()
    groups = [{"params": model[0].parameters(), "centered": True}, {"params": model[2].parameters()}]

    with pytest.raises(UnsupportedOptimizerError, match="the parameter groups differ in `centered`"):
        to_backend_optimizer(torch.optim.RMSprop(groups, lr=0.1), model, backend=poptorch)


def test_hooks_of_the_step_are_refused(poptorch):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)

    with pytest.raises(UnsupportedOptimizerError, match="step hooks"):
        to_backend_optimizer(optimizer, model, backend=poptorch)


def test_a_hook_of_the_toolkits_own_is_no_hindrance(poptorch):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(default_optimizer)

    converted = to_backend_optimizer(optimizer, model, backend=poptorch)

    assert type(converted) is poptorch.optim.SGD


def test_dampening_with_momentum_is_warned_of(poptorch):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)

    with pytest.warns(PortingWarning, match="`dampening` acts on the first step too"):
        converted = to_backend_optimizer(optimizer, model, backend=poptorch)

    assert converted.param_groups[0]["dampening"] == 0.5


@pytest.mark.parametrize("name", ["torch", "device"])
def test_parameters_of_another_model_are_refused(name, poptorch):
    other, model = make_model(), make_model()
    kind = torch.optim.SGD if name == "torch" else poptorch.optim.SGD

    with pytest.raises(UnsupportedOptimizerError) as caught:
        to_backend_optimizer(kind(other.parameters(), lr=0.1), model, backend=poptorch)

    assert caught.value.code == "O003"
    assert caught.value.finding.message == "4 of the optimizer's 4 parameters are not the model's"
    assert "[6, 4]" in caught.value.finding.notes[0]


# -- changes after the port ----------------------------------------------------------------------------------------


def pair(poptorch, **settings):
    model = make_model()
    source = torch.optim.SGD(model.parameters(), **{"lr": 0.1, **settings})
    return source, to_backend_optimizer(source, model, backend=poptorch)


def test_changed_settings_are_copied(poptorch):
    source, target = pair(poptorch, momentum=0.9)
    source.param_groups[0].update(lr=torch.tensor(0.5), momentum=0.8)

    has_changed = sync_hyper_parameters(source, target)

    assert has_changed
    assert (target.param_groups[0]["lr"], target.param_groups[0]["momentum"]) == (0.5, 0.8)


def test_nothing_changed_is_said_so(poptorch):
    source, target = pair(poptorch)

    assert not sync_hyper_parameters(source, target)
    assert not sync_hyper_parameters(target, target)


def test_no_new_names_appear_in_the_devices_optimizer(poptorch):
    source, target = pair(poptorch)
    names = set(target.param_groups[0])
    source.param_groups[0].update(lr=0.5, initial_lr=0.1, remark="mine")

    sync_hyper_parameters(source, target)

    assert set(target.param_groups[0]) == names


def test_a_constant_becomes_variable_before_compilation(poptorch):
    source, target = pair(poptorch)
    source.param_groups[0]["momentum"] = 0.9

    sync_hyper_parameters(source, target, is_compiled=False)

    assert target.param_groups[0]["momentum"] == 0.9
    assert not target.variable_attrs.isConstant("momentum")


def test_a_constant_cannot_change_after_compilation(poptorch):
    source, target = pair(poptorch)
    source.param_groups[0].update(momentum=0.9, lr=0.5)

    with pytest.raises(UnsupportedOptimizerError, match="`momentum` changes, but the compiled program"):
        sync_hyper_parameters(source, target, is_compiled=True)

    assert (target.param_groups[0]["lr"], target.param_groups[0]["momentum"]) == (0.1, 0.0)


def test_a_new_group_is_refused(poptorch):
    source, target = pair(poptorch)
    source.add_param_group({"params": [nn.Parameter(torch.ones(1))]})

    with pytest.raises(UnsupportedOptimizerError, match="O005"):
        sync_hyper_parameters(source, target)


def test_a_setting_without_counterpart_is_refused_later_too(poptorch):
    source, target = pair(poptorch)
    source.param_groups[0]["maximize"] = True

    with pytest.raises(UnsupportedOptimizerError, match="`maximize=True`"):
        sync_hyper_parameters(source, target)


def test_conversions_are_silent_otherwise(poptorch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, target = pair(poptorch, momentum=0.9, weight_decay=0.1)

    assert target.param_groups[0]["weight_decay"] == 0.1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_clipping_on_the_device_equals_clipping_before_each_step_on_the_host(kind, poptorch):
    plain, model = make_model(), make_model()
    optimizer = kind(plain.parameters(), lr=0.5)
    expected = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        assert norm > 0.1
        optimizer.step()
        expected.append(loss.detach())

    wrapped = LossInForward(model, F.cross_entropy, backend=poptorch)
    torch_optimizer = kind(model.parameters(), lr=0.5)
    converted = to_backend_optimizer(torch_optimizer, wrapped, backend=poptorch, max_grad_norm=0.1)
    executor = poptorch.trainingModel(wrapped, optimizer=converted)
    losses = [executor(x, y)[1] for x, y in batches()]

    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


def test_an_optimizer_that_cannot_clip_is_refused(poptorch):
    model = make_model()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.1)

    with pytest.raises(UnsupportedOptimizerError, match="the device's RMSprop does not clip gradients") as info:
        to_backend_optimizer(optimizer, model, backend=poptorch, max_grad_norm=1.0)

    assert info.value.code == "O002"


def test_the_devices_own_optimizer_is_told_to_clip_itself(poptorch):
    model = make_model()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(UnsupportedOptimizerError, match=r"SGD\(\.\.\., max_grad_norm=\.\.\.\)"):
        to_backend_optimizer(optimizer, model, backend=poptorch, max_grad_norm=1.0)


@pytest.mark.parametrize("norm", [0, -1.0, float("inf"), float("nan"), True, "5"])
def test_a_norm_that_is_none_is_refused(norm, poptorch):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(OptionError, match="`max_grad_norm` is"):
        to_backend_optimizer(optimizer, model, backend=poptorch, max_grad_norm=norm)
