"""Every code has a page, and what the pages show is what happens."""

from __future__ import annotations

import importlib.util
import re
import warnings
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional

import pytest

from porting.cli.main import main
from porting.diagnostics import CODES
from porting.diagnostics.codes import PAGES_FOLDER, read_page, suggest_names

SECTIONS = ["What it does", "Why it matters", "Example", "Use instead"]
WIDTH = 80

# Pages whose examples cannot be run, each with the reason.
NOT_RUN: Dict[str, str] = {}
if importlib.util.find_spec("poptorch"):
    NOT_RUN.update(dict.fromkeys(["D001", "D002"], "the vendor's PopTorch is installed here"))


@dataclass(frozen=True)
class Block:
    """A block of Python on a page, with the code that it must raise or warn of, if any."""

    source: str
    line: int
    raises: Optional[str] = None
    warns: Optional[str] = None


def blocks_of(page: str) -> Iterator[Block]:
    for match in re.finditer(r"^```python(?: (raises|warns)=(\w+))?\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        expectation = {match[1]: match[2]} if match[1] else {}
        yield Block(source=match[3], line=page[: match.start(3)].count("\n"), **expectation)


def codes_shown_by(block: Block, *, file: str, names: Dict[str, Any]) -> Dict[str, List[str]]:
    """Run a block and list the codes of the findings that it raised and warned of."""
    program = compile("\n" * block.line + block.source, file, "exec")
    raised: List[str] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            exec(program, names)
        except Exception as error:
            if not hasattr(error, "finding"):
                raise
            raised.append(error.finding.code)
    findings = [getattr(warning.message, "finding", None) for warning in shown]
    return {"raises": raised, "warns": [finding.code if finding else "another warning" for finding in findings]}


def test_every_code_has_a_page_and_every_page_a_code():
    pages = {path.stem for path in PAGES_FOLDER.iterdir()}

    assert pages == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_is_named_after_its_code_and_has_all_sections(code):
    page = read_page(code)

    assert page.startswith(f"# {code}: {CODES[code].slug}\n\n*{CODES[code].severity.value}: {CODES[code].title}*\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("code", CODES)
def test_a_page_fits_a_terminal(code):
    too_long = [line for line in read_page(code).splitlines() if len(line) > WIDTH]

    assert too_long == []


@pytest.mark.sampled(60)
@pytest.mark.parametrize("code", CODES)
def test_the_examples_of_a_page_do_what_it_says(code, tmp_path, monkeypatch):
    if code in NOT_RUN:
        pytest.skip(NOT_RUN[code])
    monkeypatch.chdir(tmp_path)
    # a copy: what lies in the package's own folder is not a user's code, and places would point past it
    file = tmp_path / f"{code}.md"
    file.write_text(read_page(code), encoding="utf-8")
    names: Dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}

    for block in blocks_of(read_page(code)):
        shown = codes_shown_by(block, file=str(file), names=names)

        assert shown["raises"] == ([block.raises] if block.raises else []), block.source
        assert shown["warns"] == ([block.warns] if block.warns else []), block.source


@pytest.mark.parametrize("code", ["E010", "R001", "R002"])
def test_the_commands_on_a_page_print_what_it_shows(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (session, *_others) = re.findall(r"^```console\n(.*?)^```$", read_page(code), re.DOTALL | re.MULTILINE)

    for step in re.split(r"^\$ porting ", session, flags=re.MULTILINE)[1:]:
        command, *shown = step.splitlines()
        main(command.split())

        output = "".join(capsys.readouterr())
        assert [line for line in shown if line not in output] == []


@pytest.mark.parametrize("code", CODES)
def test_an_example_that_fails_fails_with_the_code_of_its_page(code):
    expected = {block.raises or block.warns for block in blocks_of(read_page(code))} - {None}

    assert expected <= {code}


def test_similar_names_finds_a_slug_by_a_part_of_it():
    assert "cpu-tensor-in-forward" in suggest_names("cpu-tensor")


def test_similar_names_that_are_equally_near_stand_in_the_order_of_the_table():
    assert suggest_names("C01") == ["C001", "C010", "C011", "C012", "C013"]


def test_similar_names_of_nonsense_are_none():
    assert suggest_names("zzzzzzzzzz") == []
