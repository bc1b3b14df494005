"""Find recipes and their steps by the names of folders and files, without importing anything, and copy them.

A copy's programs import each other and nothing of the original.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from porting.diagnostics import PortingError, join_names, suggest_file, suggest_name

__all__ = [
    "RECIPES_FOLDER",
    "Recipe",
    "RecipeStep",
    "copy_recipe",
    "create_folder",
    "find_recipe",
    "read_recipes",
    "require_new",
]

RECIPES_FOLDER = Path(__file__).parents[1] / "recipes"
"""Where the recipes of this package lie, each a folder of steps with a README."""

_PACKAGE = "porting.recipes"
_STEP_FILE = re.compile(r"step_(\d+)_(\w+)\.py")


@dataclass(frozen=True)
class RecipeStep:
    """One program of a chain: `step_1_loss_in_forward.py` has the number 1 and the name `loss_in_forward`."""

    number: int
    name: str
    path: Path

    @property
    def source(self) -> str:
        """The program."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The first line of its docstring, without the full stop."""
        return _read_summary(self.source)


@dataclass(frozen=True)
class Recipe:
    """A chain of steps, in order, in a folder of its own.

    `package` is the package of its modules. It is None for a folder of the user's, whose modules are imported by
    their bare names, as a script in that folder would import them.
    """

    folder: Path
    steps: Tuple[RecipeStep, ...]
    package: Optional[str] = None

    @property
    def name(self) -> str:
        """The folder's name, which is the recipe's."""
        return self.folder.name

    @property
    def summary(self) -> str:
        """The recipe's subject, in one line."""
        described = self.folder / "__init__.py"
        return _read_summary(described.read_text(encoding="utf-8")) if described.exists() else ""

    @property
    def readme(self) -> Path:
        """The story: what each step changes, and why."""
        return self.folder / "README.md"

    @property
    def workload(self) -> Path:
        """The program that all steps share: data, model, the test."""
        return self.folder / "workload.py"

    def step(self, number: int) -> RecipeStep:
        """Return the step of this number; KeyError when there is none."""
        return {step.number: step for step in self.steps}[number]

    def module_name(self, stem: str) -> str:
        """Name the module to import for a file of the folder: `step_0_plain`, `checks`, `pictures`."""
        return stem if self.package is None else f"{self.package}.{stem}"

    def diff_of(self, step: RecipeStep) -> List[str]:
        """Return the lines of a unified diff from the step before; none for the first step."""
        before = self.steps[self.steps.index(step) - 1]
        if step is self.steps[0]:
            return []
        lines = difflib.unified_diff(
            before.source.splitlines(), step.source.splitlines(), before.path.name, step.path.name, n=1, lineterm=""
        )
        return list(lines)


def read_recipes() -> List[Recipe]:
    """Read the names and steps of this package's recipes from their folders, without importing them.

    >>> "first_port" in [recipe.name for recipe in read_recipes()]
    True
    """
    found = []
    for folder in sorted(RECIPES_FOLDER.iterdir()):
        steps = _read_steps(folder)
        if steps:
            found.append(Recipe(folder, steps, package=f"{_PACKAGE}.{folder.name}"))
    return found


def find_recipe(name: str) -> Recipe:
    """Find a recipe by its name, or by the path of a folder of steps, such as a copy.

    A word without a separator names a folder only if no recipe has that name. Raises PortingError R001 with
    the nearest names when nothing is found.

    >>> find_recipe("first_port").step(1).name
    'host_loop'
    """
    recipes = {recipe.name: recipe for recipe in read_recipes()}
    if name in recipes:
        return recipes[name]
    if Path(name).is_dir():
        return _read_recipe(Path(name).resolve())
    raise PortingError.of(
        "R001",
        notes=f"asked for: `{name}`; there is: {', '.join(recipes)}",
        help=suggest_name(name, recipes)
        or suggest_file(name, otherwise="`porting recipe list` says what each recipe shows"),
    )


def _read_recipe(folder: Path) -> Recipe:
    steps = _read_steps(folder)
    if not steps:
        raise PortingError.of(
            "R001",
            message=f"no recipe is in the folder `{folder}`",
            notes="a recipe has files such as `step_0_plain.py` and `step_1_loss_in_forward.py`",
            help="`porting recipe new NAME` writes one for a model of yours",
        )
    numbers = [step.number for step in steps]
    twice = [step.path.name for step in steps if numbers.count(step.number) > 1]
    if twice:
        raise PortingError.of(
            "R001",
            message=f"two steps of the folder `{folder}` have one number",
            notes=join_names(twice),
            help="number each step, or name a file that is none without `step_` in front",
        )
    is_ours = folder.parent == RECIPES_FOLDER.resolve()
    return Recipe(folder, steps, package=f"{_PACKAGE}.{folder.name}" if is_ours else None)


def _read_steps(folder: Path) -> Tuple[RecipeStep, ...]:
    matches = {path: _STEP_FILE.fullmatch(path.name) for path in folder.glob("step_*.py")}
    steps = [RecipeStep(int(match[1]), match[2], path) for path, match in matches.items() if match]
    return tuple(sorted(steps, key=lambda step: step.number))


def _read_summary(source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "").split("\n", 1)[0].rstrip(".")


_HIDDEN = re.compile(r"\.|__pycache__$")


def copy_recipe(recipe: Recipe, destination: Path) -> List[Path]:
    """Copy a recipe to a new folder, as a whole or not at all; return its files, relative to the folder.

    Programs that import modules of the recipe import those of the copy. Raises PortingError R002 if `destination`
    exists or cannot be written.
    """
    with create_folder(destination) as folder, _report_refused_writes(destination):
        files = sorted(path.relative_to(recipe.folder) for path in recipe.folder.rglob("*") if path.is_file())
        copied = [path for path in files if str(path) != "__init__.py" and not any(map(_HIDDEN.match, path.parts))]
        for path in copied:
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py" and recipe.package is not None:
                source = (recipe.folder / path).read_text(encoding="utf-8")
                (folder / path).write_text(_use_bare_names(source, recipe.package), encoding="utf-8")
            else:
                shutil.copyfile(recipe.folder / path, folder / path)
        return copied


def require_new(destination: Path) -> None:
    """Raise PortingError R002 for a destination that exists."""
    if os.path.lexists(destination):
        raise PortingError.of(
            "R002",
            notes=f"there is: {destination}",
            help="name a folder that does not exist yet, or move this one away",
        )


@contextmanager
def create_folder(destination: Path) -> Iterator[Path]:
    """Create a folder beside `destination`, which takes that name when the block ends without an error.

    Raises PortingError R002 if that exists, or cannot be written.
    """
    require_new(destination)
    parent = destination.absolute().parent
    with ExitStack() as undone:
        with _report_refused_writes(destination):
            parent.mkdir(parents=True, exist_ok=True)
            unfinished = undone.enter_context(tempfile.TemporaryDirectory(prefix=".recipe-", dir=parent))
            folder = Path(unfinished) / destination.name
            folder.mkdir()
        yield folder
        with _report_refused_writes(destination):
            folder.rename(destination)


@contextmanager
def _report_refused_writes(destination: Path) -> Iterator[None]:
    """Raise R002 where the system refuses to write."""
    try:
        yield
    except OSError as error:
        raise PortingError.of(
            "R002",
            message=f"the destination `{destination}` cannot be written",
            notes=error.strerror or str(error),
            help="name a folder where you may write, and that has room",
        ) from error


def _use_bare_names(source: str, package: str) -> str:
    r"""Let a program import its neighbours by their bare names.

    >>> _use_bare_names("from porting.recipes.a.planes import Plane", "porting.recipes.a")
    'from planes import Plane'
    >>> _use_bare_names("from porting.recipes.a import (\n    planes,\n    tracks,\n)", "porting.recipes.a")
    'import planes, tracks'
    """
    folder = rf"(?:{re.escape(package)}|\.)"
    source = re.sub(rf"^(\s*)from {folder} import \(([^)]*)\)", _put_import_on_one_line, source, flags=re.MULTILINE)
    source = re.sub(rf"^(\s*)from {folder} import ", r"\1import ", source, flags=re.MULTILINE)
    source = re.sub(r"^(\s*)from \.(?=\w)", r"\1from ", source, flags=re.MULTILINE)
    return re.sub(rf"\b{re.escape(package)}\.(?=\w)", "", source)


def _put_import_on_one_line(match: re.Match[str]) -> str:
    names = [name.strip() for name in match[2].split(",")]
    return f"{match[1]}import {', '.join(filter(None, names))}"
