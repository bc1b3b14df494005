"""Programs written for a test, and the facts that are collected of them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Callable

import pytest

from porting.source import Facts, collect_facts, read_programs


@pytest.fixture
def facts_of(tmp_path: Path) -> Callable[..., Facts]:
    """Write `train.py` and other files beside it, and collect what happens when `train.py` runs."""

    def collect(program: str, **files: str) -> Facts:
        for name, text in {"train": program, **files}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return collect_facts(read_programs([tmp_path / "train.py"]))

    return collect
