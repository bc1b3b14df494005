"""Pictures of events."""

from __future__ import annotations

import sys

import pytest

from porting.data.display import draw_event
from porting.data.events import NeutrinoEvents
from porting.diagnostics import PortingError


@pytest.mark.parametrize("with_prediction", [False, True])
def test_a_picture_is_small_and_a_png(tmp_path, with_prediction):
    pytest.importorskip("matplotlib", reason="the extra `recipes` is not installed")
    image, labels = NeutrinoEvents(1, height=64, width=96)[0]

    path = draw_event(tmp_path / "event.png", image, labels, labels if with_prediction else None, title="one")

    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert 5_000 < len(content) < 60_000


def test_a_picture_is_a_png_whatever_its_name(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `recipes` is not installed")
    image, labels = NeutrinoEvents(1, height=16, width=16)[0]

    assert draw_event(tmp_path / "event.pdf", image, labels).read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_leaves_the_one_before(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure", reason="the extra `recipes` is not installed")
    image, labels = NeutrinoEvents(1, height=16, width=16)[0]
    (tmp_path / "event.png").write_bytes(b"before")
    monkeypatch.setattr(figure.Figure, "savefig", lambda _figure, file, **_how: file.write(b"a part") and 1 / 0)

    with pytest.raises(ZeroDivisionError):
        draw_event(tmp_path / "event.png", image, labels)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("event.png", b"before")]


def test_an_empty_event_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `recipes` is not installed")
    image, labels = NeutrinoEvents(1, height=64, width=96)[0]

    assert draw_event(tmp_path / "event.png", image * 0, labels * 0).exists()


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    image, labels = NeutrinoEvents(1, height=16, width=16)[0]
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(PortingError, match="X001") as caught:
        draw_event(tmp_path / "event.png", image, labels)

    assert caught.value.finding.help == ('pip install "ipu-porting[recipes]"',)
