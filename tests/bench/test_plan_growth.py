"""The growth of a plan is measured by size, and told with its slope."""

from __future__ import annotations

import pytest

from porting.bench.plan_growth import measure_plan, write_growth


@pytest.mark.slow
def test_more_blocks_are_more_operators():
    one, two = measure_plan(4), measure_plan(8)

    assert 1.5 < two["operators"] / one["operators"] < 2
    assert all(value >= 0 for value in one.values())


def test_each_figure_has_a_row_with_its_slope():
    rows = [{"blocks": size, "operators": 10 * size, "seconds": 0.5 * size, "MiB more": 7.0} for size in (1, 2, 4)]

    assert list(write_growth(rows)) == [
        "| operators | 10 | 20 | 40 | slope |",
        "|---|---|---|---|---|",
        "| seconds | 0.5 | 1.0 | 2.0 | 1.00 |",
        "| MiB more | 7.0 | 7.0 | 7.0 | 0.00 |",
    ]
