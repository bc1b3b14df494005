"""Short programs, and what is found in them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Callable, List

import pytest

from porting.source.checks import check_source
from porting.source.project import read_programs

Find = Callable[..., List[str]]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Find what a program has, as `CODE:line`; more files of the program are given by name."""

    def find_in(program: str, **files: str) -> List[str]:
        paths = []
        for name, text in {"program": program, **files}.items():
            path = tmp_path / f"{name}.py"
            path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
            paths.append(str(path))
        findings = check_source(read_programs(paths[:1]))
        return [f"{finding.code}:{finding.place.line}" for finding in findings if finding.place is not None]

    return find_in
