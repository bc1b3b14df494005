"""Layouts: what options, optimizer and machine make of a step."""

from __future__ import annotations

import pytest
import torch

from porting import PortOptions
from porting.diagnostics import OptionError
from porting.machines import find_chip, find_machine
from porting.planning.layouts import cut_stages, make_layout
from tests.planning.step_chains import chain

CHIP = find_chip("bow")
POD = find_machine("bow-pod16")
HUGE = 1 << 50


def lay_out(step=None, **options):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    return make_layout(chain() if step is None else step, PortOptions(**options), optimizer, CHIP)


def test_plain_options_are_one_stage_that_keeps_everything():
    layout = lay_out()

    assert (layout.begins, layout.ipus, layout.recomputes, layout.accumulates) == ((0,), (0,), False, False)
    assert layout.capacity == CHIP.memory_bytes


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"accumulation": 2}, "accumulates", True),
        ({"recompute": ["layer1"]}, "marks", (1,)),
        ({"optimizer_state": "off_chip"}, "state_off_chip", True),
        ({"shard_optimizer_state": True, "replicas": 4}, "state_shards", 4),
        ({"serialize": {"layer2": 3}}, "serialized", {"weight2": 3}),
    ],
    ids=str,
)
def test_each_option_has_its_place(options, field, value):
    assert getattr(lay_out(**options), field) == value


def test_one_share_of_memory_is_that_of_every_ipu():
    assert set(lay_out(available_memory=0.3).proportions) == {0.3}


def test_a_step_that_fits_is_not_cut():
    layout, stages = cut_stages(chain(), lay_out(), PortOptions(), POD, None, HUGE)

    assert (layout.begins, stages) == ((0,), {})


def test_a_step_is_cut_into_as_many_as_are_asked_for():
    layout, stages = cut_stages(chain(), lay_out(), PortOptions(), POD, 2, HUGE)

    assert (layout.num_ipus, list(stages.values())) == (2, [1])


def test_more_stages_than_places_are_refused():
    with pytest.raises(OptionError, match="cannot be cut into stages on 9 IPUs"):
        cut_stages(chain(), lay_out(), PortOptions(), POD, 9, HUGE)
