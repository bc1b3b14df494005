"""The glossary's table of words: each is explained, and what it warns of is no name in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator

import pytest

import porting
from tests.source_trees import parse_all

PACKAGE = Path(porting.__file__).parent
TEXT = (PACKAGE.parent / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Say|--)(.+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
TERMS = re.findall(r"^\*\*(.+?)\*\*", TEXT, re.MULTILINE)
UNWANTED = sorted({word for _say, _for, words in ROWS for word in re.findall(r"`(\w+)`", words)})

# Packages that keep to the words and to the form of names and docstrings; to be made longer, never shorter.
CLEANED = (
    "adapters",
    "aliases",
    "analysis",
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
    "gradient_check",
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
    "training_loop",
    "verify",
)
SOURCES = sorted(path for package in CLEANED for path in (PACKAGE / package).rglob("*.py"))

# Words before an early colon are a sentence if they begin with such a verb, or have one inside; others are a heading.
OPENING_VERBS = set(
    """
    check compare configure define deliver describe draw export extend find generate handle help hook implement list
    name plan port probe read replace report run simulate stand time train turn write
    """.split()
)
INNER_VERBS = {
    "are",
    "becomes",
    "come",
    "comes",
    "has",
    "have",
    "hold",
    "is",
    "makes",
    "moves",
    "reaches",
    "share",
    "train",
    "trains",
}
SIZE_OF_A_HEADING = 5

# spelled by the vendor, or an argument of `ported.gradients` since the first version
VENDORS = {"OverlapDeviceIterationLoop", "iteration"}

# the one-word private functions that are verbs; all others say as well what they act on
VERBS = {"_apply", "_fail", "_fits", "_freeze", "_round", "_start", "_unfreeze", "_widen"}


@pytest.fixture(scope="module")
def trees():
    """All sources, parsed once, by their names; let go of when these tests are over."""
    return {str(path.relative_to(PACKAGE)): tree for path, tree in parse_all(SOURCES).items()}


def names_in(tree: ast.Module) -> Iterator[str]:
    """List the names that a file gives: to functions, classes, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def functions_in(tree: ast.Module) -> Iterator[str]:
    """List the functions of a file that are called: properties are nouns."""
    for node in ast.walk(tree):
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


def test_names_have_the_words_of_the_glossary(trees):
    unwanted = re.compile("|".join(f"_{word}(?=_)" for word in UNWANTED))
    found = {
        path: name
        for path, tree in trees.items()
        for name in names_in(tree)
        if unwanted.search(f"_{snake_case(name)}_") and name not in VENDORS
    }

    assert found == {}


def test_a_docstring_says_what_a_module_is_for_and_asks_nothing(trees):
    asking = {"How", "What", "When", "Where", "Whether", "Which", "Who", "Why", "Will"}
    first_words = {path: (ast.get_docstring(tree) or "").split(" ")[0] for path, tree in trees.items()}

    assert {name: word for name, word in first_words.items() if word in asking} == {}


def opens_with_a_sentence(docstring: str) -> bool:
    """Tell whether the first line is a sentence, as far as punctuation tells, and no heading with a list below it."""
    first_line = docstring.split("\n", 1)[0]
    heading = re.match(r"(.+?):(?= |$)", " ".join(first_line.lower().split()[:SIZE_OF_A_HEADING]))
    words = heading[1].split() if heading else ["is"]  # as without a colon: nothing speaks against a sentence
    return first_line.endswith((".", "?")) and (words[0] in OPENING_VERBS or not INNER_VERBS.isdisjoint(words))


def test_a_module_docstring_opens_with_a_sentence():
    docstrings = {path: ast.get_docstring(tree) for path, tree in parse_all(PACKAGE.rglob("*.py")).items()}

    assert [str(path) for path, text in docstrings.items() if not opens_with_a_sentence(text or "")] == []


@pytest.mark.parametrize(
    ("docstring", "is_sentence"),
    [
        ("Run all checks of a captured step, one after the other.", True),
        ("Probe the hardware: the SDK, tools and driver.", True),
        ("The hardware is probed: the SDK, tools and driver.", True),
        ("The hardware: its SDK, tools and driver.", False),
        ("A port: its calls and its report.", False),
        ("Probe the hardware", False),
    ],
)
def test_a_heading_is_told_from_a_sentence(docstring, is_sentence):
    assert opens_with_a_sentence(docstring) is is_sentence


def test_a_private_function_of_one_word_is_a_verb(trees):
    one_word = {
        path: name
        for path, tree in trees.items()
        for name in functions_in(tree)
        if re.fullmatch(r"_[a-z0-9]+", name) and name not in VERBS
    }

    assert one_word == {}
