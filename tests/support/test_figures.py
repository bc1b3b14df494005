"""Pictures of matplotlib fit into a page: they have its colour, its width, and titles of their parts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from porting import PortingError
from porting.support.figures import INK, require_matplotlib, save_figure, write_svg

pytest.importorskip("matplotlib")


def draw(figure: Any) -> None:
    figure.subplots().plot([1, 2], [3, 4], gid="line")


def test_a_part_says_its_title_and_others_have_no_names() -> None:
    picture = write_svg(draw, "a line", {"line": "losses < 1"})

    assert '<g class="line"><title>losses &lt; 1</title>' in picture
    assert "<g id=" not in picture


def test_text_has_the_colour_of_the_page_and_the_picture_its_width() -> None:
    picture = write_svg(draw, "a < b", {})

    assert picture.startswith('<svg xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="a &lt; b"')
    assert INK not in picture
    assert "currentColor" in picture


def test_the_same_picture_is_the_same_text() -> None:
    assert write_svg(draw, "a line", {}) == write_svg(draw, "a line", {})


def test_a_picture_may_be_a_file_of_another_kind() -> None:
    assert save_figure(draw, format="png").startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(PortingError) as caught:
        require_matplotlib()

    assert caught.value.code == "X001"
