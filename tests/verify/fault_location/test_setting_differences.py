"""Settings of modules, losses, code and optimizers are compared, and what differs is said with both values."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.verify.fault_location.setting_differences import (
    SettingDifference,
    compare_losses,
    compare_modules,
    compare_optimizers,
)
from tests.verify.fault_location.ports import Net
from tests.verify.fault_location.steps import make_training


def change(path, name, value):
    def make(model):
        setattr(model.get_submodule(path), name, value)

    return make


def freeze(model):
    model.first.bias.requires_grad_(False)


def without_bias(model):
    model.second = nn.Linear(16, 8, bias=False)


def exchange(model):
    model.act = nn.GELU()


def leave_out(model):
    del model.drop
    model.drop = nn.Identity()


@pytest.mark.parametrize(
    ("make", "owner", "words"),
    [
        (change("norm", "eps", 0.1), "norm", "`eps` is 1e-05 in plain PyTorch and 0.1 in the port"),
        (change("norm", "training", False), "norm", "it is in eval mode in the port alone"),
        (change("drop", "p", 0.5), "drop", "`p` is 0.2 in plain PyTorch and 0.5 in the port"),
        (change("", "scale", (1, 2)), "", "`scale` is 2 in plain PyTorch and (1, 2) in the port"),
        (change("", "extra", "word"), "", "`extra` is absent in plain PyTorch and word in the port"),
        (freeze, "first", "`bias.requires_grad` is True in plain PyTorch and False in the port"),
        (without_bias, "second", "`bias` is absent in plain PyTorch and None in the port"),
        (exchange, "act", "`class` is ReLU in plain PyTorch and GELU in the port"),
        (leave_out, "drop", "`class` is Dropout in plain PyTorch and Identity in the port"),
    ],
)
def test_a_setting_of_a_module_that_differs_is_told(make, owner, words):
    model = Net()
    other = copy.deepcopy(model)
    make(other)

    found = compare_modules(model, other)

    assert [(item.owner, str(item)) for item in found if item.owner == owner][:1] == [(owner, words)]


def test_equal_modules_have_no_differences():
    model = Net()

    assert compare_modules(model, copy.deepcopy(model)) == []


def test_a_module_of_one_side_is_absent_on_the_other():
    (found,) = compare_modules(nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU(), nn.Tanh()))

    assert str(found) == "`module` is absent in plain PyTorch and Tanh in the port"


def test_float_settings_may_differ_by_rounding():
    pair = [nn.Dropout(0.1), nn.Dropout(0.1 * (1 + 1e-9))]

    assert compare_modules(*pair) == []


class Scaled(nn.Module):
    def forward(self, x):
        return x * 2


class Shifted(nn.Module):
    def forward(self, x):
        # another sum
        return x * 2 + 1


def test_the_first_line_of_code_that_differs_is_told_with_its_place():
    found = next(item for item in compare_modules(Scaled(), Shifted()) if item.name == "forward")

    assert (found.plain, found.ported) == ("`return x * 2`", "`return x * 2 + 1`")
    assert found.place.file.endswith("test_setting_differences.py")


def test_a_forward_that_was_put_on_an_instance_is_compared_as_code():
    model, other = Scaled(), Scaled()
    other.forward = lambda x: x * 3

    (found,) = compare_modules(model, other)

    assert found.name == "forward"
    assert "x * 3" in found.ported


def test_long_values_are_cut():
    assert len(str(SettingDifference("", "name", "a" * 500, 1))) < 200
    assert "a tensor of [3, 3]" in str(SettingDifference("", "weight", None, torch.ones(3, 3)))


# -- losses ------------------------------------------------------------------------------------------------------------


def mean_loss(output, labels):
    return nn.functional.mse_loss(output, labels)


def half_loss(output, labels):
    return nn.functional.mse_loss(output, labels) / 2


def flip(labels):
    return labels.flip(0)


def port_of(loss, *, label=-1, functions=()):
    return SimpleNamespace(loss=loss, label=label, wrapped=SimpleNamespace(functions=[loss, *functions]))


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        (nn.MSELoss(), nn.MSELoss(reduction="sum"), "`reduction` is mean in plain PyTorch and sum in the port"),
        (nn.MSELoss(), nn.L1Loss(), "`class` is MSELoss in plain PyTorch and L1Loss in the port"),
        (nn.MSELoss(), mean_loss, "`loss` is MSELoss in plain PyTorch and mean_loss in the port"),
        (mean_loss, half_loss, "mse_loss(output, labels) / 2` in the port"),
        (nn.functional.mse_loss, mean_loss, "`loss` is mse_loss in plain PyTorch and `return nn.functional.mse_loss"),
        (None, nn.MSELoss(), "`loss` is None in plain PyTorch and MSELoss in the port"),
        ({"a": nn.MSELoss()}, {"a": nn.MSELoss(reduction="sum")}, "`reduction` is mean"),
        (
            nn.CrossEntropyLoss(),
            nn.CrossEntropyLoss(weight=torch.ones(2)),
            "`weight` is None in plain PyTorch and [1.0, 1.0] in the port",
        ),
    ],
)
def test_a_loss_that_differs_is_told(plain, ported, words):
    training = make_training()

    found = compare_losses(training.__class__(training.model, plain, training.optimizer), port_of(ported))

    assert any(words in str(item) for item in found), list(map(str, found))


def test_equal_losses_have_no_differences():
    assert compare_losses(make_training(loss=mean_loss), port_of(mean_loss)) == []
    assert compare_losses(make_training(loss=nn.MSELoss()), port_of(nn.MSELoss())) == []


def test_another_label_is_told():
    (found,) = compare_losses(make_training(loss=mean_loss), port_of(mean_loss, label="y"))

    assert (found.name, found.plain, found.ported) == ("label", -1, "y")


@pytest.mark.parametrize(
    ("own", "functions", "values"),
    [(None, [flip], (None, "flip")), (flip, [], ("flip", "None")), (flip, [mean_loss], ("flip", "mean_loss"))],
)
def test_a_transform_of_labels_on_one_side_alone_is_told(own, functions, values):
    training = make_training(loss=nn.MSELoss(), label_transform=own)

    (found,) = compare_losses(training, port_of(nn.MSELoss(), functions=functions))

    assert (found.name, found.plain, found.ported) == ("label_transform", *values)


def test_the_same_transform_is_no_difference():
    training = make_training(loss=nn.MSELoss(), label_transform=flip)

    assert compare_losses(training, port_of(nn.MSELoss(), functions=[flip])) == []


def test_a_loss_of_the_user_s_own_is_told_beside_the_port_s():
    training = make_training(loss=nn.MSELoss(), compute_loss=half_loss)

    (found,) = compare_losses(training, port_of(nn.MSELoss()))

    assert (found.plain, found.ported) == ("`return nn.functional.mse_loss(output, labels) / 2`", "MSELoss()")


# -- optimizers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "ported", "found"),
    [
        ({"a": {"lr": 0.1}, "b": {"lr": 0.1}}, {"a": {"lr": 0.2}, "b": {"lr": 0.2}}, [("", "lr", 0.1, 0.2)]),
        ({"a": {"lr": 0.1}, "b": {"lr": 0.1}}, {"a": {"lr": 0.1}, "b": {"lr": 0.2}}, [("b", "lr", 0.1, 0.2)]),
        ({"a": {"betas": (0.9, 0.99)}}, {"a": {"betas": (0.9, 0.999)}}, [("", "betas[1]", 0.99, 0.999)]),
        ({"a": {}, "b": {}}, {"a": {}}, [("b", "parameter", "trained", "not trained")]),
        ({"a": {"lr": 0.1}}, {"a": {"lr": 0.1}}, []),
    ],
)
def test_settings_of_optimizers_are_told_by_their_parameters(plain, ported, found):
    differences = compare_optimizers(plain, ported)

    assert [(item.owner, item.name, item.plain, item.ported) for item in differences] == found
