"""The glossary's table of words: each is explained, and what it warns of is no name in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

import porting

PACKAGE = Path(porting.__file__).parent
TEXT = (PACKAGE.parent / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Say|--)(.+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
TERMS = re.findall(r"^\*\*(.+?)\*\*", TEXT, re.MULTILINE)
UNWANTED = sorted({word for _say, _for, words in ROWS for word in re.findall(r"`(\w+)`", words)})

# Packages that keep to the words and to the form of names and docstrings; to be made longer, never shorter.
CLEANED = (
    "adapters",
    "aliases",
    "api",
    "bench",
    "capture",
    "check",
    "cli",
    "comparison",
    "data",
    "diagnostics",
    "doctor",
    "engines",
    "executables",
    "exports",
    "integrations",
    "models",
    "nan_search",
    "options",
    "planning",
    "recipe_chain",
    "run",
    "simulator",
    "support",
    "targets",
    "verify",
)
SOURCES = sorted(path for package in CLEANED for path in (PACKAGE / package).rglob("*.py"))

# spelled by the vendor, or an argument of `ported.gradients` since the first version
VENDORS = {"OverlapDeviceIterationLoop", "iteration"}

# the one-word private functions that are verbs; all others say as well what they act on
VERBS = {"_apply", "_fail", "_fits", "_freeze", "_round", "_start", "_unfreeze", "_widen"}

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))


def names_in(path: Path) -> Iterator[str]:
    """List the names that a file gives: to functions, classes, arguments and variables."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def functions_in(path: Path) -> Iterator[str]:
    """List the functions of a file that are called: properties are nouns."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and not any("property" in ast.unparse(d) for d in node.decorator_list):
            yield node.name


def test_the_table_has_each_word_once_and_in_order():
    words = [say for say, _for, _not in ROWS]

    assert words == sorted(set(words), key=str.lower)
    assert len(words) > 10


def test_every_word_of_the_table_is_explained_below():
    assert [say for say, _for, _not in ROWS if say not in TERMS] == []


def test_no_word_is_both_explained_and_unwanted():
    assert set(UNWANTED) & {snake_case(term).replace("-", "_") for term in TERMS} == set()


@each_source
def test_names_have_the_words_of_the_glossary(path):
    found: List[Tuple[str, str]] = [
        (name, word)
        for name in names_in(path)
        for word in UNWANTED
        if f"_{word}_" in f"_{snake_case(name)}_" and name not in VENDORS
    ]

    assert found == []


@each_source
def test_a_docstring_says_what_a_module_is_for_and_asks_nothing(path):
    first_word = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split(" ")[0]

    assert first_word not in {"How", "What", "When", "Where", "Whether", "Which", "Who", "Why", "Will"}


@each_source
def test_a_private_function_of_one_word_is_a_verb(path):
    one_word = {name for name in functions_in(path) if re.fullmatch(r"_[a-z0-9]+", name)}

    assert one_word <= VERBS
