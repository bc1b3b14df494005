"""The page on verifying shows what its commands print, and its tests are run by the plugin that it tells of."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

from porting import pytest_plugin
from porting.cli.main import main
from tests.docs.page_blocks import blocks_of, without_numbers

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "verifying.md"


def sessions() -> Iterator[Tuple[str, List[str]]]:
    """List the commands of the page and the lines that it shows of their output."""
    for block in blocks_of(PAGE):
        if block.language == "console":
            command, *shown = block.source.splitlines()
            yield command.replace("$ porting ", ""), [line for line in shown if line.strip() not in ("", "...")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with the programs of the page; nothing of them stays loaded."""
    for block in blocks_of(PAGE):
        if block.language in ("python", "py") and block.source.startswith("# "):
            (tmp_path / block.file_name).write_text(block.source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("train", "test_port"):
        sys.modules.pop(name, None)


def test_the_commands_print_what_the_page_shows(folder, capsys):
    for command, shown in sessions():
        status = main(command.split())
        printed = [without_numbers(line) for line in capsys.readouterr().out.splitlines()]
        assert [line for line in shown if without_numbers(line) not in printed] == [], command
        assert status == (1 if any(line.startswith("FAIL") for line in shown) else 0)
    assert (folder / "certificate.html").exists()


def test_the_tests_of_the_page_pass_or_are_skipped(folder, pytester):
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\npythonpath = .\n")
    for name in ("train.py", "test_port.py"):
        (pytester.path / name).write_text((folder / name).read_text())

    result = pytester.runpytest_inprocess("-p", "no:porting", "-p", "no:cacheprovider", plugins=[pytest_plugin])

    result.assert_outcomes(passed=1, skipped=1)
