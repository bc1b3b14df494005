"""README and docs show what happens: their programs and commands run, and their links lead somewhere.

`page_blocks.py` says what the blocks of a page can be. Commands are run when they are quick, and otherwise looked up.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from porting.aliases import COMPANIONS, VENDOR
from porting.cli.main import VERBS, main
from tests.docs.page_blocks import blocks_of, commands_of, run, without_measures

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK_COMMANDS = ("--version", "explain", "recipe list", "recipe show")
EXAMPLE_LINES = 10
README_LINES = 125

each_page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
without_vendor = pytest.mark.skipif(
    importlib.util.find_spec("poptorch") is not None, reason="pages show what happens without the vendor's PopTorch"
)


@pytest.fixture(autouse=True)
def _aliases_end_with_the_page(monkeypatch):
    """Take the vendor's names that a page brings in out of this process again."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {**VENDOR, **COMPANIONS}:
            del sys.modules[name]


@pytest.mark.sampled(20)
@without_vendor
@each_page
def test_the_programs_of_a_page_do_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PORTING_DEVICE")
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path / "none"))  # what other tests keep is not shown
    names: Dict[str, Any] = {"__name__": "__main__"}

    for block in blocks_of(page):
        if block.language == "python":
            printed, code = run(block, names)

            assert code == block.raises, block.source
            if block.output is not None:
                assert without_measures(printed) == without_measures(block.output)


@each_page
def test_the_commands_of_a_page_exist_and_quick_ones_succeed(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)

    for command in filter(None, commands_of(page)):
        program, *words = shlex.split(command.replace("python -m porting ", "porting "))

        if program == "make":
            assert {word for word in words if "=" not in word} <= set(targets), command
        elif program == "porting":
            assert words[0] == "--version" or words[0] in VERBS, command
            if " ".join(words).startswith(QUICK_COMMANDS):
                assert quickly_run(words) == 0, command
        elif program == "python" and words[0] == "-m":
            assert importlib.util.find_spec(words[1]) is not None, command
        else:
            assert program in ("cd", "git", "pip", "python", "export"), command


def quickly_run(words: List[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@each_page
def test_the_links_of_a_page_lead_to_files_and_headings_that_exist(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)

    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        file, _, heading = target.partition("#")
        if not file.startswith(("http://", "https://")):
            path = (page.parent / file).resolve() if file else page
            assert path.exists(), target
            assert not heading or heading in headings_of(path), target


def headings_of(page: Path) -> List[str]:
    """List the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


@without_vendor
@pytest.mark.parametrize("name", ["train.py", "gate.py"])
def test_an_example_of_the_readme_runs_on_its_own_as_a_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PORTING_DEVICE")
    block = next(block for block in blocks_of(ROOT / "README.md") if block.file_name == name)

    _printed, code = run(block, {"__name__": "__main__"})

    assert code == block.raises


def test_the_first_example_of_the_readme_has_ten_lines_of_code():
    example = next(block for block in blocks_of(ROOT / "README.md") if block.language == "python")

    code = [line for line in example.source.splitlines() if line.strip() and not line.lstrip().startswith("#")]

    assert len(code) <= EXAMPLE_LINES


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES
