"""Find recipes and their steps by the names of folders and files, without importing anything."""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from porting.diagnostics import PortingError, list_names

__all__ = ["RECIPES_FOLDER", "Recipe", "RecipeStep", "find_recipe", "read_recipes"]

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
        """What the recipe shows, in one line."""
        described = self.folder / "__init__.py"
        return _read_summary(described.read_text(encoding="utf-8")) if described.exists() else ""

    @property
    def readme(self) -> Path:
        """The story: what each step changes, and why."""
        return self.folder / "README.md"

    @property
    def workload(self) -> Path:
        """What all steps share: data, model, the test."""
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

    A word without a separator is taken for a folder only if no recipe has that name. Raises PortingError R001 with
    the nearest names when nothing is found.

    >>> find_recipe("first_port").step(1).name
    'host_loop'
    """
    recipes = {recipe.name: recipe for recipe in read_recipes()}
    if name in recipes:
        return recipes[name]
    if Path(name).is_dir():
        return _read_recipe(Path(name).resolve())
    close = difflib.get_close_matches(name, recipes)
    raise PortingError.of(
        "R001",
        notes=f"asked for: `{name}`; there is: {', '.join(recipes)}",
        help=f"did you mean `{close[0]}`?" if close else "`porting recipe list` says what each recipe shows",
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
            notes=list_names(twice),
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
