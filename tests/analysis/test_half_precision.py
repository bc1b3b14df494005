"""The range of float16 is held against what was measured, and the loss scaling is the largest that fits."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from porting.analysis.half_precision import LARGEST_HALF, MeasuredModule, advise_loss_scaling, iter_range_faults


@given(st.floats(1e-12, 1e4))
def test_a_scale_leaves_room_and_is_a_power_of_two(largest):
    scale = advise_loss_scaling([MeasuredModule("layer", 1.0, largest_gradient=largest)])

    assert math.log2(scale).is_integer()
    assert scale == 1.0 or scale * largest * 16 <= LARGEST_HALF


def test_without_gradients_there_is_no_advice():
    assert advise_loss_scaling([MeasuredModule("layer", 1.0)]) is None


def test_values_within_the_range_pass():
    assert not list(iter_range_faults([MeasuredModule("layer", 65504.0, 1.0, 1e-4, 0.001)]))


def test_the_largest_value_beyond_is_named_with_the_others():
    modules = [MeasuredModule("one", 7e4), MeasuredModule("two", 9e4), MeasuredModule("three", 3.0)]

    (finding,) = iter_range_faults(modules)

    assert "`two` reaches 9e+04" in finding.message
    assert finding.notes == ("so do those of `one`",)


def test_a_gradient_beyond_is_a_finding_of_its_own():
    assert [finding.code for finding in iter_range_faults([MeasuredModule("one", 7e4, 7e4)])] == ["P020", "P020"]


def test_lost_gradients_come_with_a_number():
    (finding,) = iter_range_faults([MeasuredModule("layer", 1.0, 1e-6, 1e-9, 0.5)])

    assert finding.code == "P021"
    assert "loss_scaling=16,777,216" in finding.help[0]
