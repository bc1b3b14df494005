"""Units are what can be computed, forgotten and computed again without another result."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import porting.simulator as poptorch
from porting.capture import capture_step
from porting.engines.recompute.value_units import UnitGraph, statistics_written_by


class Function(nn.Module):
    """A layer, and a function of its result."""

    def __init__(self, function):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.function = function

    def forward(self, x):
        return poptorch.identity_loss(self.function(self, self.layer(x)), "sum")


def captured(function):
    return capture_step(Function(function), [torch.ones(4, 3)], mode="training")


def unit_of(units, name):
    """Find the unit that has the operator called `name`."""
    return next(unit for unit in units.units if any(name in str(node.target) for node in unit.nodes))


def test_units_come_after_those_that_they_wait_for():
    units = UnitGraph.of(captured(lambda model, x: x.relu() * x.sigmoid()))

    assert all(earlier < number for number, before in enumerate(units.before) for earlier in before)
    assert all(used <= before for used, before in zip(units.uses, units.before))


def test_a_view_belongs_to_what_it_looks_at():
    units = UnitGraph.of(captured(lambda model, x: x.exp().t().contiguous()))

    assert unit_of(units, "exp") is unit_of(units, "aten.t")


def test_a_write_in_place_belongs_to_what_it_changes():
    units = UnitGraph.of(captured(lambda model, x: x.exp().add_(1)))

    assert unit_of(units, "exp") is unit_of(units, "add_")


def test_random_numbers_are_drawn_once():
    units = UnitGraph.of(captured(lambda model, x: F.dropout(x)))

    assert unit_of(units, "dropout").is_kept


def test_what_computes_without_a_gradient_is_kept():
    def detached(_model, x):
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    units = UnitGraph.of(captured(detached))

    assert unit_of(units, "max").is_kept
    assert not unit_of(units, "div").is_kept


def test_statistics_that_a_normalisation_updates_are_no_reason_to_keep_it():
    graph = captured(lambda model, x: model.norm(x))
    written = [item for node in graph.graph.nodes for item in statistics_written_by(node)]

    assert {item.meta["state_name"] for item in written} == {"norm.running_mean", "norm.running_var"}
    assert not unit_of(UnitGraph.of(graph), "batch_norm").is_kept
