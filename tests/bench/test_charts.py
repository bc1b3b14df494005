"""Pictures are well-formed, show what is compared, and need an extra that is named where it is missing."""

from __future__ import annotations

import dataclasses
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from porting.bench.charts import draw_curve, draw_growth, draw_roofline, draw_speed_ups, write_png
from porting.bench.growth import list_growths
from porting.bench.limits import MatmulRate, Rates, Work, find_limits
from porting.diagnostics import PortingError

from .conftest import make_record, results_of
from .test_curve import make_curve
from .test_growth import make_case

pytest.importorskip("matplotlib")


def read_picture(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def points_of(picture: ElementTree.Element, name: str) -> list:
    """List the points of the line in the part of a picture that has this name."""
    (path,) = [part.find("{*}path").get("d") for part in picture.iter() if part.get("class") == name]
    return [tuple(map(float, point)) for point in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path)]


def titles_of(picture: ElementTree.Element) -> list:
    return [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]


def texts_of(picture: ElementTree.Element) -> set:
    return {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}


def make_limits(*, operator_bytes: float = 1e6) -> dict:
    """Make the limits of a case on a machine of 100 GFLOP/s and 10 GB/s, whose step has 10 MFLOP."""
    rates = Rates((MatmulRate(512, 1e11),), convolution_flops_per_second=1e11, copy_bytes_per_second=1e10)
    work = Work(1e7, 0.0, operator_bytes, 3.0)
    return dataclasses.asdict(find_limits(rates, work, eager_seconds=2e-3, ported_seconds=1e-3))


# -- speed-ups ---------------------------------------------------------------------------------------------------------


def test_a_picture_is_a_png(report, tmp_path):
    records = [make_record(report=report, demanded=2.0), make_record(name="not run")]

    write_png(results_of(*records), tmp_path / "picture.png")

    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_any_result_is_a_png_too(tmp_path):
    write_png(results_of(make_record()), tmp_path / "picture.png")

    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_every_case_has_a_bar_with_its_name(report):
    records = [make_record(name=name, report=report, demanded=2.0) for name in ("one", "<b>")]

    picture = read_picture(draw_speed_ups(records))

    assert titles_of(picture) == ["one replay", "<b> replay"]
    assert {"one", "<b>", "asked"} <= texts_of(picture)


def test_text_has_the_colour_of_the_page(report):
    picture = draw_speed_ups([make_record(report=report)])

    assert "fill: currentColor" in picture
    assert "#1c2733" not in picture


def test_without_matplotlib_the_extra_is_named(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(PortingError, match=r"ipu-porting\[bench\]"):
        write_png(results_of(make_record(report=report)), tmp_path / "picture.png")


# -- curves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cold", [(4.0, 4.5, 5.0, 5.5, 6.0), (100.0, 101.0), (0.001, 0.002, 0.003, 0.004, 0.005)])
def test_all_that_is_drawn_lies_in_the_frame(cold):
    picture = read_picture(draw_curve(make_curve(cold=cold)))

    width, height = map(float, picture.get("viewBox").split()[2:])
    places = [place for side in ("eager", "cold", "warm") for place in points_of(picture, f"side-{side}")]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_eager_is_the_line_at_1_and_higher_is_better():
    picture = read_picture(draw_curve(make_curve()))

    eager, cold, warm = (points_of(picture, f"side-{side}")[-1][1] for side in ("eager", "cold", "warm"))
    assert warm < eager < cold
    assert "eager = 1" in texts_of(picture)


def test_an_engine_that_was_exchanged_is_a_line_with_its_name():
    titles = titles_of(read_picture(draw_curve(make_curve(engines=("replay", "aot <b>")))))

    assert "aot <b> from step 2 on, after 2.00 s, process 1" in titles


# -- growth ------------------------------------------------------------------------------------------------------------


def make_growth(**figures):
    cases = [make_case(1e-3 * layers, layers=layers) for layers in (2, 4, 8)]
    for case in cases:
        case["result"]["machinery"].update(figures)
    return list_growths(cases)[0]


def test_every_figure_has_a_line_and_a_name():
    growth = make_growth()

    picture = read_picture(draw_growth(growth))

    assert titles_of(picture) == ["linear", *growth.seconds]
    assert {"linear", *growth.seconds} <= texts_of(picture)


def test_a_figure_in_proportion_is_parallel_to_the_linear_line():
    picture = read_picture(draw_growth(make_growth()))

    names = ["growth-linear", *(f"growth-{number}" for number in range(6))]
    lines = [points_of(picture, name) for name in names]
    rises = [points[0][1] - points[-1][1] for points in lines]
    assert max(rises) - min(rises) <= 1


def test_what_is_not_known_is_left_out():
    assert "beyond operators" not in titles_of(read_picture(draw_growth(make_growth(beyond_seconds=None))))


# -- roofline ----------------------------------------------------------------------------------------------------------


def with_limits(report, **given) -> dict:
    record = make_record(name="<b>", report=report)
    record["result"]["limits"] = make_limits(**given)
    for side, seconds in (("eager", 2e-3), ("ported", 1e-3)):
        record["result"][side]["step_seconds"]["median"] = seconds
    return record


def test_what_a_step_attains_is_its_operations_by_its_time(report):
    picture = read_picture(draw_roofline([with_limits(report)]))

    assert titles_of(picture) == ["<b> replay, eager: 5 GFLOP/s", "<b> replay, ported: 10 GFLOP/s"]


def test_without_limits_there_is_no_roofline(report):
    assert draw_roofline([make_record(report=report)]) == ""
