"""Tables of text are read by their sections, without comments and blank lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import porting.source
from porting.source.tables import read_sections


@pytest.mark.parametrize("path", sorted(Path(porting.source.__file__).parent.glob("*.txt")), ids=lambda path: path.name)
def test_no_section_stands_twice_or_is_empty(path):
    heads = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("[")]

    sections = read_sections(path.name)

    assert len(sections) == len(heads)
    assert all(sections.values())


def test_lines_come_without_comments_and_in_their_order():
    assert read_sections("wordings.txt")["B022 cosmictagger 0"] == [
        "a comparison stands where an assignment is meant",
        "write `=`, or drop the line",
    ]
