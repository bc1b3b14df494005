"""Every recipe is a chain of small proven steps: its checks hold, neighbours differ by little, its pages are true."""

from __future__ import annotations

import ast
import difflib
import functools
import os
import re
import shlex
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple, Union
from unittest import mock

import pytest

from porting.cli.main import _build_parser
from porting.diagnostics import PortingError
from porting.recipe_chain import Check, Recipe, RecipeStep, Steps, read_checks, read_recipes, run_check
from porting.recipe_chain.checks import EXTRA_OF_MODULE
from porting.recipe_chain.recipe_files import copy_recipe
from tests.docs.page_blocks import blocks_of, commands_of, run, without_measures

ROOT = Path(__file__).parents[2]
RECIPES = {recipe.name: recipe for recipe in read_recipes()}
STEPS = [(recipe, step) for recipe in RECIPES.values() for step in recipe.steps]
NEIGHBOURS = [(recipe, *pair) for recipe in RECIPES.values() for pair in zip(recipe.steps, recipe.steps[1:])]
# the first port is proven by every `make test`, the others by `make check`
QUICK_RECIPE = "first_port"
MAX_CHANGED_LINES = 12
MAX_PICTURE_BYTES = 60_000
MAX_STEP_LINES = 100
TROUBLE_PAGE = "what-can-go-wrong.md"
# what a user types besides the command itself; each name stands for a program of another package
OTHER_PROGRAMS = ("cd", "export", "git", "ls", "mkdir", "pip", "poprun", "python", "python3", "torchrun")


def name_of(value: Any) -> str:
    if isinstance(value, Check):
        return f"{value.step}: {value.text}"
    return value.path.stem if isinstance(value, RecipeStep) else str(getattr(value, "name", value))


each_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=name_of)
each_step = pytest.mark.parametrize(("recipe", "step"), STEPS, ids=name_of)
each_neighbour = pytest.mark.parametrize(("recipe", "before", "after"), NEIGHBOURS, ids=name_of)


def marked_slow(recipe: Recipe) -> Any:
    """Make a recipe a parameter that is slow unless it is the quick one."""
    return pytest.param(recipe, id=recipe.name, marks=[] if recipe.name == QUICK_RECIPE else [pytest.mark.slow])


@functools.lru_cache(maxsize=None)
def steps_of(recipe: Recipe) -> Steps:
    """Give the steps of a recipe, which train once for all tests."""
    return Steps(recipe)


def checks_of(recipe: Recipe) -> Tuple[Check, ...]:
    return read_checks(recipe, steps_of(recipe))


def all_checks() -> List[Any]:
    """List all checks; in the place of those of a recipe that cannot be read stands the error."""
    found: List[Any] = []
    for recipe in RECIPES.values():
        try:
            found += [as_parameter(recipe, check) for check in checks_of(recipe)]
        except Exception as error:
            found.append(pytest.param(recipe, error, id=f"{recipe.name}-checks"))
    return found


def as_parameter(recipe: Recipe, check: Check) -> Any:
    marks = [pytest.mark.slow] if check.slow or recipe.name != QUICK_RECIPE else []
    return pytest.param(recipe, check, id=f"{recipe.name}-{name_of(check)}", marks=marks)


def skip_without_extra(error: PortingError) -> None:
    if error.finding.code == "X001":
        pytest.skip("; ".join(error.finding.notes))


@pytest.mark.parametrize(("recipe", "check"), all_checks())
def test_a_check_holds(recipe: Recipe, check: Union[Check, Exception]):
    if isinstance(check, PortingError):
        skip_without_extra(check)
    if isinstance(check, Exception):
        raise check
    try:
        outcome = run_check(check, steps_of(recipe))
    except PortingError as error:
        skip_without_extra(error)
        raise

    assert outcome.is_met, f"{outcome.found}\n{outcome.trouble}"


@each_recipe
def test_each_step_has_a_check(recipe):
    with_extras(recipe)

    assert {check.step for check in checks_of(recipe)} == {step.number for step in recipe.steps}


def with_extras(recipe: Recipe) -> None:
    """Skip the test where a package is missing that the recipe imports."""
    for path in recipe.folder.glob("*.py"):
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name in EXTRA_OF_MODULE:
                pytest.importorskip(name)


# -- programs --------------------------------------------------------------------------------------------------------


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


# -- pictures --------------------------------------------------------------------------------------------------------


def pictures_of(recipe: Recipe) -> List[Path]:
    return sorted((recipe.folder / "pictures").glob("*.png"))


@each_recipe
def test_the_pages_show_the_pictures_which_are_small(recipe):
    pages = "".join(page.read_text(encoding="utf-8") for page in recipe.folder.glob("*.md"))

    assert pictures_of(recipe) != []
    assert [path.name for path in pictures_of(recipe) if f"(pictures/{path.name})" not in pages] == []
    assert [path.name for path in pictures_of(recipe) if path.stat().st_size > MAX_PICTURE_BYTES] == []


@pytest.mark.slow
@each_recipe
def test_the_pictures_can_be_drawn_again(recipe, tmp_path, monkeypatch):
    with_extras(recipe)
    pictures = steps_of(recipe).load("pictures")
    # what is learnt matters to readers alone: the checks train as long as the story says
    monkeypatch.setattr(pictures, "NUM_STEPS", steps_of(recipe).num_steps, raising=False)

    drawn = pictures.draw(tmp_path)

    assert sorted(path.name for path in drawn) == [path.name for path in pictures_of(recipe)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in pictures_of(recipe)]


# -- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [marked_slow(recipe) for recipe in RECIPES.values()])
def test_what_can_go_wrong_goes_wrong_as_the_page_shows(recipe, tmp_path, monkeypatch):
    with_extras(recipe)
    page = recipe.folder / TROUBLE_PAGE
    monkeypatch.chdir(tmp_path)
    # A page may set variables, as a launcher does; no later test starts among instances that do not exist.
    monkeypatch.setattr(os, "environ", os.environ)
    names: Dict[str, Any] = {"__name__": "__main__"}

    # A page sets variables, as a launcher does: they end with it, or the next test is one of two instances.
    with mock.patch.dict(os.environ):
        for block in blocks_of(page):
            if block.language == "python":
                printed, code = run(block, names)

                assert code == block.raises, block.source
                if block.output is not None:
                    assert without_measures(printed) == without_measures(block.output), block.source


@each_recipe
def test_the_page_of_troubles_shows_mistake_error_and_cure(recipe):
    troubles = [block for block in blocks_of(recipe.folder / TROUBLE_PAGE) if block.raises or block.says]

    assert len(troubles) >= 2
    assert [block.source for block in troubles if block.output is None] == []


def test_the_command_of_a_block_is_read_with_its_continuation_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ porting recipe \\\n    list  # all\noutput\n```\n")

    assert [command.split() for command in commands_of(page)] == [["porting", "recipe", "list"]]
