"""What docs say of the code is so: files and functions exist, and lists are complete."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, Set, Tuple

import pytest

import porting
from tests.docs import llms_index
from tests.docs.codes_page import PAGE, make_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
WALK = ROOT / "docs" / "start-to-finish.md"
DECISION_LINES = 30
VERSION_LINES = 100
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

each_page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
each_decision = pytest.mark.parametrize("page", DECISIONS, ids=[page.stem for page in DECISIONS])


def references_of(page: Path) -> Iterator[Tuple[Path, str]]:
    """List the files that a page names in backticks, each with the name after `::`, which may be empty."""
    for file, name in re.findall(r"`((?:porting|tests)/[\w/.]+?)(?:::([\w.]+))?`", page.read_text("utf-8")):
        yield ROOT / file, name


@lru_cache(maxsize=None)
def names_in(file: Path) -> Set[str]:
    """List the functions, classes and constants of a module, members as in `Class.method`."""
    return set(_names_of(ast.parse(file.read_text("utf-8")).body, prefix=""))


def _names_of(body: List[ast.stmt], prefix: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + statement.name
            yield from _names_of(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@each_page
def test_the_files_and_functions_that_a_page_names_exist(page):
    for file, name in references_of(page):
        assert file.exists(), file
        assert not name or name in names_in(file), f"{file}::{name}"


def test_the_walk_keeps_to_its_ten_files():
    assert len({file for file, _name in references_of(WALK)}) == 10


def test_the_page_of_codes_lists_the_table_of_codes():
    assert PAGE.read_text("utf-8") == make_page(), "write it again: python -m tests.docs.codes_page"


def test_the_index_for_assistants_lists_every_page():
    assert llms_index.INDEX.read_text("utf-8") == llms_index.make_index(), "write it: python -m tests.docs.llms_index"


def test_the_glossary_is_in_alphabetical_order():
    terms = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)

    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == len(set(terms)) > 30


@each_decision
def test_a_decision_has_context_decision_and_consequences(page):
    text = page.read_text("utf-8")

    assert text.startswith(f"# {page.stem[:4]}: ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


@each_decision
def test_a_decision_is_short(page):
    assert len(page.read_text("utf-8").splitlines()) <= DECISION_LINES


def test_the_index_lists_every_decision():
    listed = re.findall(r"^\| \[\d+\]\(([^)]+)\)", (ROOT / "docs/decisions/README.md").read_text("utf-8"), re.MULTILINE)

    assert listed == [page.name for page in DECISIONS]


def test_the_page_of_differences_has_a_test_for_each():
    page = (ROOT / "docs" / "simulator-differences.md").read_text("utf-8")
    names = names_in(ROOT / "tests/simulator/test_differences.py")
    tests = {name for name in names if name.startswith("test_") and "." not in name}

    assert set(re.findall(r"`(test_\w+)`", page)) == tests


def test_the_changelog_has_this_version():
    assert f"## {porting.__version__} - " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_what_is_new_in_a_version_is_one_page():
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]

    assert [text.split()[0] for text in versions if len(text.splitlines()) > VERSION_LINES] == []
