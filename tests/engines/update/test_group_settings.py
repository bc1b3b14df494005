"""Settings of a parameter group are compared by their numbers."""

from __future__ import annotations

import dataclasses

import torch

from porting.engines.update.group_settings import GroupSettings, OptimizerKind

SETTINGS = GroupSettings(kind=OptimizerKind.SGD1, learning_rate=0.1)


def test_settings_are_equal_whatever_their_parameters_are():
    assert SETTINGS == dataclasses.replace(SETTINGS, params=(torch.zeros(2),))


def test_another_kind_of_optimizer_makes_other_settings():
    assert SETTINGS != dataclasses.replace(SETTINGS, kind=OptimizerKind.SGD2)
