"""Cases that differ in one number alone are set against it, and a slope says how each figure grows."""

from __future__ import annotations

import pytest

from porting.bench.growth import find_slope, judge_slope, list_growths, make_growth_table
from porting.bench.tables import lay_out_tables

FIGURES = ("capture", "first_call", "plan", "call", "around", "beyond")
CHOICES = {"engine": "replay", "batch": None, "accumulation": None, "replicas": None, "layers": None}


def make_case(seconds: float, *, name: str = "tiny", repeat: int = 1, **choices) -> dict:
    """Make a record whose figures all are `seconds`."""
    machinery = {f"{figure}_seconds": seconds for figure in FIGURES}
    result = {"machinery": {**machinery, "reason": ""}}
    return {"name": name, "choices": {**CHOICES, **choices}, "repeat": repeat, "result": result}


def test_cases_that_differ_in_one_number_are_one_growth():
    cases = [make_case(2.0 * layers, layers=layers) for layers in (8, 2, 4)]

    (growth,) = list_growths(cases)

    assert (growth.title, growth.grown, growth.sizes) == ("tiny replay", "layers", (2, 4, 8))
    assert growth.seconds["capture"] == (4.0, 8.0, 16.0)
    assert growth.slopes == pytest.approx(dict.fromkeys(growth.seconds, 1.0))


def test_each_engine_grows_by_itself():
    cases = [make_case(1.0, batch=batch, engine=engine) for engine in ("replay", "aot") for batch in (1, 2, 4)]

    assert [growth.title for growth in list_growths(cases)] == ["tiny replay", "tiny aot"]


def test_a_matrix_of_two_numbers_has_a_growth_for_every_line_of_it():
    cases = [make_case(1.0, batch=batch, replicas=replicas) for batch in (1, 2, 4) for replicas in (1, 2, 4)]

    assert [growth.grown for growth in list_growths(cases)] == ["batch"] * 3 + ["replicas"] * 3


def test_two_sizes_are_too_few():
    assert list_growths([make_case(1.0, batch=batch) for batch in (1, 2)]) == []


def test_repeats_are_one_size():
    cases = [make_case(value, batch=batch, repeat=int(value)) for batch in (1, 2, 4) for value in (1.0, 2.0, 9.0)]

    (growth,) = list_growths(cases)

    assert growth.seconds["call"] == (2.0, 2.0, 2.0)


def test_cases_without_figures_are_left_out():
    cases = [make_case(1.0, batch=batch) for batch in (1, 2, 4, 8)]
    cases[0]["result"] = None
    cases[1]["result"]["machinery"]["plan_seconds"] = None

    assert list_growths(cases) == []


def test_a_compiled_engine_has_no_figure_beyond_its_operators():
    cases = [make_case(1.0, batch=batch) for batch in (1, 2, 4)]
    for case in cases:
        case["result"]["machinery"]["beyond_seconds"] = None

    (growth,) = list_growths(cases)

    assert growth.slopes["beyond operators"] is None


@pytest.mark.parametrize(
    ("power", "word"), [(0.0, "constant"), (0.5, "below linear"), (1.0, "linear"), (2.0, "above linear")]
)
def test_the_slope_is_the_power(power, word):
    sizes = [1, 2, 4, 8]

    slope = find_slope(sizes, [3.0 * size**power for size in sizes])

    assert slope == pytest.approx(power, abs=1e-9)
    assert judge_slope(slope) == word


LINEAR = [make_case(1e-3 * layers, layers=layers) for layers in (2, 4, 8)]


def test_a_table_has_sizes_and_slopes():
    rows = [line.split() for line in lay_out_tables(map(make_growth_table, list_growths(LINEAR)))]

    assert rows[0] == ["growth", "with", "layers:", "tiny", "replay"]
    assert rows[1] == ["layers", "2", "(x1)", "4", "(x2)", "8", "(x4)", "slope"]
    assert rows[2] == ["capture", "2.00", "ms", "4.00", "ms", "8.00", "ms", "1.00", "linear"]


def test_nothing_is_said_of_cases_that_do_not_grow():
    assert list_growths(LINEAR[:1]) == []
