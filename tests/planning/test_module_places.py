"""Modules are listed with their IPU, their weights and their share of the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porting.machines import find_machine
from porting.planning.memory_model import Layout
from porting.planning.module_places import place_modules
from tests.planning.step_chains import chain

POD = find_machine("bow-pod16")
CUT = Layout(begins=(0, 8), ipus=(0, 1), marks=(), recomputes=True, accumulates=True, state_bytes=8)


def nested(length, blocks):
    step = chain(length)
    paths = (f"blocks.{number // (length // blocks)}.layer{number}" for number in range(length))
    return replace(step, operations=tuple(replace(op, module_path=path) for op, path in zip(step.operations, paths)))


def test_shares_of_an_ipu_are_its_whole_time_and_weights_are_all_weights():
    places = place_modules(nested(12, 3), CUT, POD)

    for ipu in (0, 1):
        assert sum(place.share for place in places if place.ipu == ipu) == pytest.approx(1.0)
    assert sum(place.weight_bytes for place in places) == 12 * 400
    assert sum(place.num_operators for place in places) == 12


def test_a_module_that_is_cut_has_a_place_on_each_side():
    places = place_modules(nested(60, 3), replace(CUT, begins=(0, 30)), POD)

    assert [(place.module, place.ipu) for place in places] == [
        ("blocks.0", 0),
        ("blocks.1", 0),
        ("blocks.1", 1),
        ("blocks.2", 1),
    ]


def test_many_modules_are_told_by_those_around_them():
    places = place_modules(nested(400, 100), CUT, POD)

    assert {place.module for place in places} == {"blocks"}
