"""Equal factors are equal distances, what lies beyond is at the edge, and names stay apart."""

from __future__ import annotations

import re

import pytest

from porting.verify.frames import Frame, list_ticks

FRAME = Frame.of([1, 100], [0.01, 1.0])


def test_equal_factors_are_equal_distances():
    assert FRAME.x(10) - FRAME.x(1) == pytest.approx(FRAME.x(100) - FRAME.x(10), abs=0.2)
    assert FRAME.y(0.01) - FRAME.y(0.1) == pytest.approx(FRAME.y(0.1) - FRAME.y(1.0), abs=0.2)


def test_a_number_beyond_the_frame_is_at_its_edge():
    assert (FRAME.x(0.1), FRAME.x(1e6)) == (FRAME.x(1), FRAME.x(100))


def test_a_single_number_has_a_place():
    assert Frame.of([5], [1.0]).x(5) == FRAME.x(1)


def test_names_that_would_lie_on_each_other_are_moved_apart():
    drawn = "".join(FRAME.draw_labels([(50.0, "red", "a"), (50.0, "blue", "<b>"), (200.0, "green", "c")]))

    heights = sorted(float(height) for height in re.findall(r'y="([\d.]+)"', drawn))
    assert heights[1] - heights[0] >= 16
    assert heights[2] == 204.0
    assert "&lt;b&gt;" in drawn


def test_a_wide_frame_has_powers_of_ten_alone():
    assert list_ticks(0.9, 20_000.0) == [1.0, 10.0, 100.0, 1000.0, 10_000.0]
