"""Optimizers in the device's terms: type, values, constants, refusals, what is logged, and settings per group."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
from fractions import Fraction

import pytest
import torch

from porting.engines.calls.group_settings import read_settings
from porting.simulator import enums, optim
from porting.simulator._optimizer_attributes import (
    OptimizerAttrTracker,
    _OptimizerType,
    convertOptimizerToDict,
)
from porting.simulator.options import Options


def weights() -> list:
    return [torch.nn.Parameter(torch.zeros(2))]


def build(cls, **settings):
    return cls(weights(), **{"lr": 0.1, **settings})


def convert(optimizer, tracker=None, options=None, *, is_compiled=False):
    options = options or Options()
    return convertOptimizerToDict(optimizer, tracker or OptimizerAttrTracker(options), options, is_compiled)


# -- type ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        (build(torch.optim.SGD), "SGD2"),
        (build(optim.SGD), "SGD2"),
        (build(optim.SGD, use_combined_accum=True), "SGD1"),
        (build(torch.optim.Adam), "ADAM"),
        (build(optim.Adam), "ADAM"),
        (build(torch.optim.AdamW), "ADAMW"),
        (build(optim.AdamW), "ADAMW"),
        (build(optim.AdamW, bias_correction=False), "ADAMW_NO_BIAS"),
        (build(torch.optim.RMSprop), "RMSPROP"),
        (build(torch.optim.RMSprop, centered=True), "RMSPROP_CENTERED"),
        (build(optim.RMSprop, centered=True), "RMSPROP_CENTERED"),
        (build(optim.LAMB), "LAMB"),
        (build(optim.LAMB, bias_correction=False), "LAMB_NO_BIAS"),
    ],
)
def test_each_optimizer_has_its_type(optimizer, kind):
    assert convert(optimizer)["optimizer_type"].name == kind
    assert [settings.kind.name for settings in read_settings(optimizer)] == [kind]


def test_types_are_numbered_as_in_poptorch():
    names = "SGD1 SGD2 ADAM ADAMW ADAMW_NO_BIAS RMSPROP RMSPROP_CENTERED LAMB LAMB_NO_BIAS".split()

    assert {kind.name: kind.value for kind in _OptimizerType} == {name: i for i, name in enumerate(names)}
    assert repr(_OptimizerType.ADAM).startswith("<_OptimizerType.ADAM")  # as dictionaries and logs show it


def test_adam_with_decoupled_decay_is_adamw():
    optimizer = build(torch.optim.Adam)
    optimizer.param_groups[0]["decoupled_weight_decay"] = True

    assert convert(optimizer)["optimizer_type"] is _OptimizerType.ADAMW


def test_groups_must_agree_on_centering():
    optimizer = torch.optim.RMSprop([{"params": weights()}, {"params": weights(), "centered": True}])

    with pytest.raises(
        AssertionError, match=r"All parameter groups must have the same value for the 'centered' attribute \(Group 0: "
    ):
        convert(optimizer)


@pytest.mark.parametrize("cls", [torch.optim.Adagrad, torch.optim.Rprop])
def test_other_optimizers_are_refused_with_the_supported_ones(cls):
    with pytest.raises(AssertionError, match=r"Unsupported optimizer type\. Types supported.*Adam.*LAMB"):
        convert(build(cls))


class DerivedFromTorch(torch.optim.SGD):
    pass


class DerivedFromOurs(optim.AdamW):
    pass


class DerivedDirectly(optim.Optimizer, torch.optim.SGD):
    def __init__(self, params, **settings):
        optim.Optimizer.__init__(self)
        torch.optim.SGD.__init__(self, params, **settings)
        self.variable_attrs = optim.VariableAttributes(["lr"], ["lr"])


@pytest.mark.parametrize("cls", [DerivedFromTorch, DerivedFromOurs])
def test_users_subclass_is_warned_of_once_per_executor(cls, caplog):
    optimizer, tracker = build(cls), OptimizerAttrTracker(Options())

    convert(optimizer, tracker)
    convert(optimizer, tracker)

    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        f"Optimizer `{cls.__name__}` subclassed from classes in poptorch.optim or torch.optim are unlikely to behave "
        "as intended. Poptorch does not run Python optimizer code directly; "
    )


@pytest.mark.parametrize(
    "cls",
    [
        *[torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop],
        *[optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB, DerivedDirectly],
    ],
)
def test_plain_classes_are_not_warned_of(cls, caplog):
    convert(build(cls))

    assert caplog.messages == []


# -- values and constants ------------------------------------------------------------------------------------------


def test_plain_sgd_is_constant_where_it_has_its_default():
    settings = convert(build(torch.optim.SGD, momentum=0.9))

    group = {
        "learningRate": (0.1, False),
        "momentum": (0.9, False),
        "dampening": (0.0, True),
        "weightDecay": (0.0, True),
        "nesterov": (False, True),
        "velocityScaling": (1.0, True),
    }
    assert settings == {
        "optimizer_type": _OptimizerType.SGD2,
        "accumType": False,
        "velocityAccumType": False,
        "maxGradNorm": math.inf,
        "defaults": {**group, "lossScaling": (1.0, True)},
        "groups": [group],
    }


def test_plain_learning_rate_is_never_constant():
    assert convert(build(torch.optim.Adam, lr=1e-3))["groups"][0]["learningRate"] == (1e-3, False)


@pytest.mark.parametrize(
    ("cls", "default"), [(torch.optim.SGD, 0.0), (torch.optim.Adam, 0.0), (torch.optim.AdamW, 0.01)]
)
def test_plain_weight_decay_is_constant_at_its_default(cls, default):
    assert convert(build(cls, weight_decay=default))["groups"][0]["weightDecay"] == (default, True)
    assert convert(build(cls, weight_decay=0.5))["groups"][0]["weightDecay"] == (0.5, False)


def test_plain_betas_and_alpha_are_always_constant():
    adam = convert(build(torch.optim.Adam, betas=(0.5, 0.6)))["groups"][0]
    rmsprop = convert(build(torch.optim.RMSprop, alpha=0.5))["groups"][0]

    assert (adam["beta1"], adam["beta2"], rmsprop["alpha"]) == ((0.5, True), (0.6, True), (0.5, True))


def test_own_settings_are_variable_where_they_were_passed():
    group = convert(build(optim.AdamW, betas=(0.5, 0.6), weight_decay=0.01))["groups"][0]

    assert group == {
        "learningRate": (0.1, False),
        "beta1": (0.5, False),
        "beta2": (0.6, False),
        "weightDecay": (0.01, False),
        "eps": (1e-8, True),
    }


def test_own_settings_follow_their_mark():
    optimizer = build(optim.SGD)
    optimizer.variable_attrs.markAsConstant("lr")

    assert convert(optimizer)["groups"][0]["learningRate"] == (0.1, True)


def test_lamb_has_a_weight_norm_and_no_gradient_norm():
    settings = convert(build(optim.LAMB, max_weight_norm=5.0))

    assert settings["groups"][0]["maxWeightNorm"] == (5.0, False)
    assert "maxGradNorm" not in settings


def test_settings_of_the_whole_optimizer_are_plain_values():
    settings = convert(
        build(optim.RMSprop, use_tf_variant=True, first_order_momentum_accum_type=torch.float16, loss_scaling=4.0)
    )

    assert settings["useTfVariant"] is True
    assert settings["firstOrderMomentumAccumType"] is True
    assert settings["accumType"] is False
    assert settings["defaults"]["lossScaling"] == (4.0, False)


def test_settings_that_choose_the_type_are_not_sent():
    settings = convert(build(optim.AdamW, bias_correction=True))
    centered = convert(build(optim.RMSprop, centered=True))

    assert not {"biasCorrection", "bias_correction", "amsgrad"} & {*settings, *settings["defaults"]}
    assert "centered" not in centered["defaults"]


def test_groups_have_their_own_values():
    optimizer = optim.SGD([{"params": weights(), "lr": 0.5}, {"params": weights()}], lr=0.1)

    settings = convert(optimizer)

    assert [group["learningRate"][0] for group in settings["groups"]] == [0.5, 0.1]
    assert settings["defaults"]["learningRate"][0] == 0.1


def test_automatic_loss_scaling_makes_the_loss_scaling_variable():
    options = Options()
    options.Training.setAutomaticLossScaling(True)

    assert convert(build(torch.optim.SGD), options=options)["defaults"]["lossScaling"] == (1.0, False)
    assert convert(build(optim.SGD), options=options)["defaults"]["lossScaling"] == (1.0, False)


def test_equal_optimizers_have_equal_dictionaries():
    assert convert(build(optim.AdamW)) == convert(build(optim.AdamW))
    assert convert(build(optim.AdamW)) != convert(build(optim.AdamW, lr=0.2))


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, optim.Adam, optim.AdamW])
def test_amsgrad_is_refused(cls):
    with pytest.raises(ValueError, match=r"Only non-amsgrad Adam/AdamW optimizers are supported\."):
        convert(build(cls, amsgrad=True))


@pytest.mark.parametrize("value", ["fast", None, torch.zeros(2), torch.tensor(0.25)])
def test_setting_must_be_a_number(value):
    optimizer = build(torch.optim.SGD)
    optimizer.param_groups[0]["lr"] = value

    with pytest.raises(AssertionError, match="Expected a number for lr but got "):
        convert(optimizer)


def test_settings_may_be_of_any_type_of_real_numbers():
    optimizer = build(torch.optim.SGD)
    optimizer.param_groups[0]["lr"] = Fraction(1, 4)

    learning_rate, _is_constant = convert(optimizer)["groups"][0]["learningRate"]

    assert type(learning_rate) is float
    assert learning_rate == 0.25


@pytest.mark.parametrize("value", [[0.9, 0.999], (0.9,), 0.9])
def test_betas_must_be_a_pair(value):
    optimizer = build(torch.optim.Adam)
    optimizer.param_groups[0]["betas"] = value

    with pytest.raises(AssertionError, match="Expected a pair for betas but got "):
        convert(optimizer)


# -- running mean --------------------------------------------------------------------------------------------------


def strategy_of(options):
    return options.Training.meanAccumulationAndReplicationReductionStrategy


def test_half_accumulators_switch_frozen_options_to_the_running_mean():
    options = Options()
    options._freeze()

    convert(build(optim.Adam, accum_type=torch.float16), options=options)

    assert strategy_of(options) is enums.MeanReductionStrategy.Running
    assert options.Training._is_frozen
    assert options._Popart._is_frozen


@pytest.mark.parametrize(
    "optimizer",
    [build(optim.SGD), build(optim.SGD, accum_type=torch.float16, use_combined_accum=True), build(torch.optim.SGD)],
)
def test_other_optimizers_leave_the_mean_alone(optimizer):
    options = Options()

    convert(optimizer, options=options)

    assert strategy_of(options) is enums.MeanReductionStrategy.Post


def test_half_accumulators_are_refused_once_compiled():
    with pytest.raises(
        ValueError, match=r"Invalid optimizer: .*MeanReductionStrategy\.Running but the executable is already compiled"
    ):
        convert(build(optim.SGD, accum_type=torch.float16), is_compiled=True)


def test_half_accumulators_are_fine_once_compiled_with_the_running_mean():
    options = Options()
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(enums.MeanReductionStrategy.Running)

    settings = convert(build(optim.SGD, accum_type=torch.float16), options=options, is_compiled=True)

    assert settings["accumType"] is True


# -- what is logged ------------------------------------------------------------------------------------------------


def test_unexpected_names_are_logged_once_each(caplog):
    optimizer, tracker = build(optim.SGD), OptimizerAttrTracker(Options())
    convert(optimizer, tracker)
    optimizer.defaults["x"] = 1
    optimizer.param_groups[0]["y"] = 1
    optimizer.z = 1

    convert(optimizer, tracker)
    convert(optimizer, tracker)

    assert caplog.messages == [
        "Ignoring unexpected default group variable in SGD2 optimizer: ['x']",
        "Ignoring unexpected optimizer attribute in SGD2 optimizer: ['z']",
        "Ignoring unexpected group 0 attribute in SGD2 optimizer: ['y']",
    ]


def test_names_of_the_first_optimizer_are_expected(caplog):
    optimizer, tracker = build(optim.SGD), OptimizerAttrTracker(Options())
    optimizer.param_groups[0]["y"] = 1
    torch.optim.lr_scheduler.StepLR(optimizer, 1)

    convert(optimizer, tracker)
    convert(optimizer, tracker)

    assert caplog.messages == []


def test_notes_of_schedulers_are_no_attributes(caplog):
    optimizer, tracker = build(optim.SGD), OptimizerAttrTracker(Options())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    convert(optimizer, tracker)

    optimizer.step()
    scheduler.step()
    optimizer._step_count = 1
    convert(optimizer, tracker)

    assert caplog.messages == []


def test_relaxed_checks_log_at_debug_level(caplog):
    caplog.set_level(logging.DEBUG, logger="poptorch::python")
    optimizer, tracker = build(optim.SGD), OptimizerAttrTracker(Options().relaxOptimizerAttributesChecks())
    convert(optimizer, tracker)
    optimizer.z = 1

    convert(optimizer, tracker)

    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_extra_settings_of_our_class_are_expected_after_torchs(caplog):
    tracker = OptimizerAttrTracker(Options())
    convert(build(torch.optim.SGD), tracker)

    convert(build(optim.SGD, loss_scaling=2.0), tracker)

    assert caplog.messages == []


def test_copy_of_an_optimizer_is_expected_after_the_original(caplog):
    optimizer, tracker = build(optim.AdamW), OptimizerAttrTracker(Options())
    convert(optimizer, tracker)

    convert(copy.copy(optimizer), tracker)

    assert caplog.messages == []


@pytest.mark.parametrize(
    ("cls", "name"),
    [(torch.optim.SGD, "maximize"), (optim.Adam, "differentiable"), (torch.optim.AdamW, "capturable")],
)
def test_settings_that_the_device_ignores_are_named_once(cls, name, caplog):
    optimizer, tracker = build(cls, **{name: True}), OptimizerAttrTracker(Options())

    convert(optimizer, tracker)
    convert(optimizer, tracker)

    assert [message.partition(" in ")[0] for message in caplog.messages] == [f"Ignoring {name}=True"]


def test_setting_that_only_affects_the_speed_on_the_host_is_not_named(caplog):
    convert(build(torch.optim.SGD, foreach=True))

    assert caplog.messages == []


# -- settings per group --------------------------------------------------------------------------------------------


def test_group_settings_are_those_of_the_optimizer():
    parameters = weights()
    optimizer = optim.SGD(
        [{"params": parameters, "lr": 0.5, "weight_decay": 0.1}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
        loss_scaling=4.0,
        use_combined_accum=True,
        velocity_scaling=2.0,
        velocity_accum_type=torch.float16,
        max_grad_norm=3.0,
    )

    (settings,) = read_settings(optimizer)

    expected = {
        "kind": _OptimizerType.SGD1,
        "learning_rate": 0.5,
        "weight_decay": 0.1,
        "momentum": 0.9,
        "dampening": 0.0,
        "nesterov": True,
        "loss_scaling": 4.0,
        "velocity_scaling": 2.0,
        "max_grad_norm": 3.0,
        "accum_type": torch.float32,
        "first_order_type": torch.float16,
    }
    assert {name: getattr(settings, name) for name in expected} == expected
    assert settings.params[0] is parameters[0]


def test_group_settings_of_adamw_carry_betas_types_and_bias_correction():
    optimizer = build(
        optim.AdamW,
        betas=(0.5, 0.6),
        eps=1e-3,
        bias_correction=False,
        accum_type=torch.float16,
        second_order_momentum_accum_type=torch.float16,
    )

    (settings,) = read_settings(optimizer)

    assert (settings.beta1, settings.beta2, settings.eps, settings.bias_correction) == (0.5, 0.6, 1e-3, False)
    assert (settings.accum_type, settings.first_order_type, settings.second_order_type) == (
        torch.float16,
        torch.float32,
        torch.float16,
    )


def test_group_settings_of_rmsprop_and_lamb_carry_their_own():
    (rmsprop,) = read_settings(build(optim.RMSprop, alpha=0.5, centered=True, use_tf_variant=True))
    (lamb,) = read_settings(optim.LAMB([{"params": weights(), "max_weight_norm": 2.0}], lr=0.1))

    assert (rmsprop.alpha, rmsprop.centered, rmsprop.use_tf_variant) == (0.5, True, True)
    assert lamb.max_weight_norm == 2.0


def test_group_settings_follow_a_scheduler():
    optimizer = build(torch.optim.SGD)
    before = read_settings(optimizer)

    optimizer.param_groups[0]["lr"] = 0.01

    assert read_settings(optimizer) == [dataclasses.replace(before[0], learning_rate=0.01)]


def test_group_settings_compare_by_value_whatever_the_parameters():
    assert read_settings(build(optim.Adam)) == read_settings(build(optim.Adam))


def test_group_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_settings(build(optim.Adam))[0].learning_rate = 1.0
