"""What follows from a plan: the machine on which its step would fit, and what is said of one that fits nowhere."""

from __future__ import annotations

import pytest

from porting import PortOptions
from tests.planning.test_planner import plan_stack


def test_what_fits_is_found_the_smallest_machine_as_well():
    planned = plan_stack(64, 2, machine="bow-pod16")

    assert (planned.fitting.num_ipus, planned.smallest_machine.name) == (1, "bow")


def test_what_does_not_fit_says_on_which_machine_it_would():
    planned = plan_stack(4096, 24, machine="bow-pod4")
    plain = planned.to_dict()

    assert planned.verdict == "does not fit"
    assert planned.smallest_machine.num_chips >= planned.fitting.num_ipus > 4
    assert (plain["fitting_ipus"], plain["smallest_machine"]) == (16, "bow-pod16")
    assert "with these options it fits on 16 IPUs: bow-pod16 is the smallest machine" in str(planned)


def test_what_fits_on_no_machine_says_so():
    planned = plan_stack(16384, 8, machine="bow-pod4")

    assert planned.fitting is None
    assert planned.smallest_machine is None
    assert "with these options it fits on no machine of bow" in str(planned)


@pytest.mark.parametrize(("layers", "has_speed"), [(2, True), (24, False)])
def test_only_what_may_fit_has_a_speed(layers, has_speed):
    planned = plan_stack(4096, layers, machine="bow-pod4")

    assert ("samples a second" in str(planned)) is has_speed
    assert (planned.to_dict()["samples_per_second"] is not None) is has_speed


def test_too_few_ipus_that_were_asked_for_are_told_the_number_that_fits():
    planned = plan_stack(4096, 6, ipus=1)

    assert "with these options it fits on 4 IPUs: bow-2000" in str(planned)


def test_stages_of_the_options_do_not_decide_on_which_machine_it_fits():
    options = PortOptions(micro_batch=2, accumulation=3, stages={"output": 1})
    planned = plan_stack(4096, 24, options=options)

    assert planned.fitting.num_ipus == 16
