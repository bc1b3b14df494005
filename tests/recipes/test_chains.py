"""Every recipe is a chain of small proven steps: neighbours differ by little, its story is true."""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest

from porting.cli.main import _build_parser
from porting.recipe_chain import Recipe, RecipeStep
from porting.recipe_chain.recipe_files import copy_recipe
from tests.docs.page_blocks import commands_of

from .chains import RECIPES, each_recipe, name_of, steps_of, with_extras

ROOT = Path(__file__).parents[2]
STEPS = [(recipe, step) for recipe in RECIPES.values() for step in recipe.steps]
NEIGHBOURS = [(recipe, *pair) for recipe in RECIPES.values() for pair in zip(recipe.steps, recipe.steps[1:])]
MAX_CHANGED_LINES = 12
MAX_STEP_LINES = 100
# what a user types besides the command itself; each name stands for a program of another package
OTHER_PROGRAMS = ("cd", "export", "git", "ls", "mkdir", "pip", "poprun", "python", "python3", "torchrun")

each_step = pytest.mark.parametrize(("recipe", "step"), STEPS, ids=name_of)
each_neighbour = pytest.mark.parametrize(("recipe", "before", "after"), NEIGHBOURS, ids=name_of)


def num_changed_lines(before: str, after: str) -> int:
    """Count the lines that are different, new or gone; blank ones and the program's docstring do not count."""
    ours, theirs = lines_that_count(before), lines_that_count(after)
    changes = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal")


def lines_that_count(source: str) -> List[str]:
    without_docstring = re.sub(r'\A""".*?"""', "", source, flags=re.DOTALL)
    return [line.rstrip() for line in without_docstring.splitlines() if line.strip()]


def max_changed_lines(recipe: Recipe, step: RecipeStep) -> int:
    """Read the recipe's own limit, a number or one for each step, if `checks.py` has one."""
    limit = getattr(steps_of(recipe).load("checks"), "MAX_CHANGED_LINES", MAX_CHANGED_LINES)
    return limit.get(step.number, MAX_CHANGED_LINES) if isinstance(limit, dict) else limit


@each_neighbour
def test_neighbours_differ_by_a_few_lines(recipe, before, after):
    with_extras(recipe)

    assert 0 < num_changed_lines(before.source, after.source) <= max_changed_lines(recipe, after)


def test_a_changed_line_counts_once_and_blank_lines_and_docstrings_do_not():
    before = '"""A."""\n\nfirst\nsecond\nthird\n'
    after = '"""B."""\nfirst\n\nchanged\nnew\nthird\n'

    assert num_changed_lines(before, after) == 2


@each_recipe
def test_steps_are_numbered_from_0_without_gaps(recipe):
    assert [step.number for step in recipe.steps] == list(range(len(recipe.steps)))


@each_step
def test_a_step_is_a_program_that_can_be_read_at_once(recipe, step):
    assert len(step.source.splitlines()) <= MAX_STEP_LINES
    assert re.search(r"^def train\(num_steps: .*\) -> Losses:$", step.source, re.MULTILINE)
    assert re.search(r'^if __name__ == "__main__":$', step.source, re.MULTILINE)


@each_step
def test_a_step_imports_nothing_of_this_package_but_its_public_names(recipe, step):
    imports = re.findall(r"^\s*(?:from|import) (porting[\w.]*|\.[\w.]*)", step.source, re.MULTILINE)
    own = rf"porting\.recipes\.{recipe.name}(\.\w+)?"
    open_packages = r"porting(\.adapters|\.compute_mode|\.recipe_chain)?|porting\.(models|data|integrations)(\.\w+)*"

    assert [name for name in imports if not re.fullmatch(rf"{open_packages}|{own}", name)] == []


def definitions_of(source: str) -> Set[str]:
    """List the functions and classes that a program defines, as they stand there."""
    return {ast.unparse(node) for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


@each_recipe
def test_what_all_steps_share_stands_once_in_the_workload(recipe):
    shared = set.intersection(*(definitions_of(step.source) for step in recipe.steps))

    assert recipe.workload.exists()
    assert [text for text in shared if not text.startswith("def train(")] == []


@each_step
def test_a_step_says_in_a_line_what_it_changes(recipe, step):
    assert 10 < len(step.summary) <= 110


@each_recipe
def test_the_recipe_says_in_a_line_what_it_shows(recipe):
    assert 10 < len(recipe.summary) <= 110


@each_recipe
def test_a_copy_imports_its_own_files_only(recipe, tmp_path):
    files = copy_recipe(recipe, tmp_path / "copy")

    programs = [(tmp_path / "copy" / file).read_text(encoding="utf-8") for file in files if file.suffix == ".py"]
    assert [text for text in programs if re.search(rf"porting\.recipes\.{recipe.name}\b|from \.", text)] == []
    for text in programs:
        compile(text, "<copy>", "exec")


# -- the story -------------------------------------------------------------------------------------------------------


def sections_of(recipe: Recipe) -> Dict[int, str]:
    """Return the parts of the story by the numbers of their steps."""
    parts = re.split(r"^## ", recipe.readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
    numbered = [re.match(r"Step (\d+): .+\n", part) for part in parts]
    return {int(match[1]): part[match.end() :] for match, part in zip(numbered, parts) if match}


@each_recipe
def test_the_story_has_a_heading_for_each_step_in_order(recipe):
    numbers = list(sections_of(recipe))

    assert numbers in ([step.number for step in recipe.steps], [step.number for step in recipe.steps[1:]])


@each_neighbour
def test_the_story_of_a_step_begins_with_code_that_the_step_has(recipe, before, after):
    first = sections_of(recipe)[after.number].strip()

    if first.startswith("```"):
        added, removed = fenced_lines(first)
        assert added
        assert [line for line in added if line not in squeezed(after.source)] == []
        assert [line for line in removed if line not in squeezed(before.source)] == []
    else:
        spans = re.findall(r"`([^`]+)`", first.split("\n\n")[0])
        assert spans
        assert [span for span in spans if squeezed(span) not in squeezed(after.source)] == []


def squeezed(text: str) -> str:
    return " ".join(text.split())


def fenced_lines(text: str) -> Tuple[List[str], List[str]]:
    """Return the lines that a step has, and those of a diff that the one before has, of a fenced block."""
    match = re.match(r"```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert match, text.splitlines()[0]
    lines = [line for line in match[2].splitlines() if line.strip() and not line.startswith("@@")]
    is_diff = match[1] == "diff"
    added = [line[1:] if is_diff else line for line in lines if not (is_diff and line[0] == "-")]
    removed = [line[1:] for line in lines if is_diff and line[0] == "-"]
    return [squeezed(line) for line in added if line.strip() != "..."], [squeezed(line) for line in removed]


@each_recipe
def test_the_commands_of_the_story_can_be_typed(recipe):
    copies: List[str] = []

    for command in filter(None, commands_of(recipe.readme)):
        words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        assert words[0] in ("porting", *OTHER_PROGRAMS), command
        if words[0] == "porting":
            parse_command(words[1:], command)
            copies += [words[4]] if words[1:3] == ["recipe", "copy"] else []
        for word in words:
            check_word(word, recipe, copies, command)
        if words[:2] == ["porting", "recipe"] and len(words) > 3 and words[2] != "new":
            check_recipe_command(words[2:], copies, command)


def parse_command(words: List[str], command: str) -> None:
    """Let the command's own parser read the words, without doing anything."""
    if words[:1] == ["--version"]:
        return
    try:
        _arguments, unknown = _build_parser(words).parse_known_args(words)
    except SystemExit as end:
        raise AssertionError(f"the command cannot be typed: {command}") from end
    assert unknown == [], command


def check_word(word: str, recipe: Recipe, copies: List[str], command: str) -> None:
    """Check the steps' and recipes' names in a word: in `my_port/step_1_x.py`, `porting.recipes.a.step_1_x:make`."""
    for stem in re.findall(r"\bstep_\d+_\w+", word):
        assert stem in {step.path.stem for step in recipe.steps}, command
    for name in re.findall(r"porting[./]recipes[./](\w+)", word):
        assert name in RECIPES, command
    folder = re.fullmatch(r"(?:\./)?([\w/-]+)/step_\d+_\w+\.py(?::\w+)?", word)
    if folder:
        assert folder[1] in copies or (ROOT / folder[1]).is_dir(), command


def check_recipe_command(words: List[str], copies: List[str], command: str) -> None:
    """Check name and step of `recipe ACTION NAME [--step N]`."""
    name = words[1]
    assert name in RECIPES or name.replace("./", "") in copies, command
    if "--step" in words and name in RECIPES:
        numbers = [step.number for step in RECIPES[name].steps]
        assert int(words[words.index("--step") + 1]) in numbers, command


@each_recipe
def test_the_links_of_the_pages_lead_somewhere(recipe):
    for page in recipe.folder.glob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        files = [target.partition("#")[0] for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text)]

        assert [name for name in files if name and "://" not in name and not (page.parent / name).exists()] == []
