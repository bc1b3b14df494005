"""Figures of a story have lines over the numbers of steps, a grid and a legend, and become PNG files."""

from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, draw_losses, draw_memory, make_figure, save_figure


def test_lines_are_drawn_over_the_numbers_of_steps():
    axes = make_figure().subplots()

    draw_lines(axes, ("plain", [3.0, 2.0], GREY, 3), ("ported", [3.0, 1.0], BLUE, 1), ylabel="loss")

    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[1, 3], [2, 2]], [[1, 3], [2, 1]]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["plain", "ported"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("optimizer step", "loss")


def test_a_figure_becomes_a_png_file_of_its_size(tmp_path):
    path = save_figure(make_figure(width=2, height=1), tmp_path / "empty.png", dpi=50)

    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(header[start : start + 4], "big") for start in (16, 20)] == [100, 50]


def test_panels_of_losses_become_one_file(tmp_path):
    line = ("plain", [3.0, 2.0], GREY, 3)

    path = draw_losses(tmp_path / "losses.png", [line], [line], height=2, dpi=50, ylabel="loss")

    header = path.read_bytes()[:24]
    assert [int.from_bytes(header[start : start + 4], "big") for start in (16, 20)] == [400, 100]


def test_memory_is_drawn_for_reports_of_several_ipus(tmp_path):
    ipus = [SimpleNamespace(ipu=number, parts={"weight_bytes": 2**20, "code_bytes": 2**21}) for number in range(2)]
    target = SimpleNamespace(memory_bytes=2**23)
    reports = {"one": SimpleNamespace(ipus=ipus[:1], target=target), "two": SimpleNamespace(ipus=ipus, target=target)}

    path = draw_memory(tmp_path / "memory.png", reports, [("all", ("weight_bytes", "code_bytes"), BLUE)])

    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
