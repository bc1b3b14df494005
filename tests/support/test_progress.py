"""The stage is told where somebody looks, and only of what takes long."""

from __future__ import annotations

import io
import time

import pytest

from porting.support import progress
from porting.support.progress import show_progress


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "_SILENT_SECONDS", 0.05)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.02)


def test_what_is_quick_shows_nothing():
    terminal = Terminal()

    with show_progress(terminal) as tell:
        tell("reading sources")

    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_what_takes_long_shows_its_stage_and_leaves_nothing():
    terminal = Terminal()

    with show_progress(terminal) as tell:
        tell("reading sources")
        deadline = time.monotonic() + 240
        while "reading sources 00:0" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)

    assert "reading sources 00:0" in terminal.getvalue()
    assert terminal.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""


@pytest.mark.usefixtures("impatient")
def test_a_file_gets_nothing():
    stream = io.StringIO()

    with show_progress(stream) as tell:
        tell("reading sources")
        time.sleep(0.2)

    assert stream.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_an_error_ends_it():
    with pytest.raises(ValueError, match="broken"), show_progress(Terminal()):
        raise ValueError("broken")
