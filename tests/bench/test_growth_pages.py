"""Growth is a table with a column for every size, the slope, and what it means."""

from __future__ import annotations

from porting.bench.growth_pages import lay_out_growth

from .test_growth import make_cell

LINEAR = [make_cell(1e-3 * layers, layers=layers) for layers in (2, 4, 8)]


def test_a_table_has_sizes_and_slopes():
    rows = [line.split() for line in lay_out_growth(LINEAR)]

    assert rows[0] == ["growth", "with", "layers:", "tiny", "replay"]
    assert rows[1] == ["layers", "2", "(x1)", "4", "(x2)", "8", "(x4)", "slope"]
    assert rows[2] == ["capture", "2.00", "ms", "4.00", "ms", "8.00", "ms", "1.00", "linear"]


def test_nothing_is_said_of_cells_that_do_not_grow():
    assert list(lay_out_growth(LINEAR[:1])) == []
