"""Layouts: what options, optimizer and machine make of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from porting import PortOptions
from porting.diagnostics import OptionError
from porting.machines import find_chip, find_machine
from porting.planning.layouts import cut_stages, find_fitting, find_limit, find_smallest_machine, make_layout
from porting.planning.memory_model import measure_ipus
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
    with pytest.raises(OptionError, match="cannot be cut into stages on 9 IPUs") as caught:
        cut_stages(chain(), lay_out(), PortOptions(), POD, 9, HUGE)

    assert caught.value.finding.help == (f"ask for no more than {len(chain().calls)}",)


def fullest(num_ipus):
    """Return what the fullest of so many IPUs holds."""
    layout, _stages = cut_stages(chain(8), lay_out(chain(8)), PortOptions(), POD, num_ipus, HUGE)
    return max(memory.total_bytes for memory in measure_ipus(chain(8), layout))


def test_the_fewest_ipus_are_found_that_fit():
    layout, stages = find_fitting(chain(8), lay_out(chain(8)), PortOptions(), fullest(4))

    assert (layout.num_ipus, list(stages.values())) == (4, [1, 2, 3])


def test_what_fits_nowhere_has_no_layout_and_stays_on_one_ipu():
    assert find_fitting(chain(), lay_out(), PortOptions(), 1) is None
    assert cut_stages(chain(), lay_out(), PortOptions(), POD, None, 1) == (lay_out(), {})


def test_a_machine_is_no_larger_than_it_is():
    pair = replace(POD, num_chips=2)

    assert cut_stages(chain(8), lay_out(chain(8)), PortOptions(), pair, None, fullest(4))[1] == {}


@pytest.mark.parametrize(("ipus", "name"), [((0,), "bow"), ((0, 1, 2), "bow-2000"), (range(16), "bow-pod16")])
def test_the_smallest_machine_of_the_chip_has_room_for_a_replica(ipus, name):
    layout = replace(lay_out(), begins=tuple(ipus), ipus=tuple(ipus))

    assert find_smallest_machine(layout, POD).name == name


def test_a_users_own_machine_is_known_and_others_of_its_chip_are_not():
    own = replace(POD, name="ours", chip=replace(CHIP, name="our-chip"), num_chips=2)

    assert find_smallest_machine(replace(lay_out(), ipus=(0, 1)), own) is own
    assert find_smallest_machine(replace(lay_out(), ipus=(0, 1, 2)), own) is None


def test_an_ipu_is_not_planned_to_the_last_byte():
    assert find_limit(CHIP) == int(0.85 * CHIP.memory_bytes)
