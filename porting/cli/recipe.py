"""`porting recipe`: list, show, run and copy the step-by-step ports, each a chain of small programs."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from porting.command_line import count
from porting.diagnostics import FORMATS, PortingError

__all__ = ["Recipe", "RecipeStep", "add_arguments", "find_recipe", "read_recipes", "run"]

EXIT_DONE, EXIT_USAGE = 0, 2

RECIPES_FOLDER = Path(__file__).parents[1] / "recipes"
"""Where the recipes lie, each a folder of steps with a README."""

_STEP_FILE = re.compile(r"step_(\d+)_(\w+)\.py")
_EXTRA_MODULES = ("sklearn", "h5py", "matplotlib")
_RED, _GREEN, _CYAN, _PLAIN = "\033[31m", "\033[32m", "\033[36m", "\033[0m"

_EPILOG = """\
a session:
  $ porting recipe list
  $ porting recipe show first_port --step 1 --diff
  $ porting recipe run first_port --steps 20
  $ porting recipe copy first_port my_port
  $ python my_port/step_0_plain.py
"""


@dataclass(frozen=True)
class RecipeStep:
    """One program of a chain: `step_1_loss_in_forward.py` has the number 1 and the name `loss_in_forward`."""

    number: int
    name: str
    path: Path

    @property
    def module(self) -> str:
        """The module to load when the step is run."""
        return f"porting.recipes.{self.path.parent.name}.{self.path.stem}"

    @property
    def source(self) -> str:
        """The program."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The first line of its docstring, without the full stop."""
        return _first_line_of_docstring(self.source)


@dataclass(frozen=True)
class Recipe:
    """A chain of steps, in order, in a folder of its own."""

    folder: Path
    steps: Tuple[RecipeStep, ...]

    @property
    def name(self) -> str:
        """The folder's name, which is the recipe's."""
        return self.folder.name

    @property
    def summary(self) -> str:
        """What the recipe shows, in one line."""
        return _first_line_of_docstring((self.folder / "__init__.py").read_text(encoding="utf-8"))

    @property
    def readme(self) -> Path:
        """The story: what each step changes, and why."""
        return self.folder / "README.md"

    def diff_of(self, step: RecipeStep) -> List[str]:
        """Return the lines of a unified diff from the step before; none for the first step."""
        before = self.steps[self.steps.index(step) - 1]
        if step is self.steps[0]:
            return []
        lines = difflib.unified_diff(
            before.source.splitlines(), step.source.splitlines(), before.path.name, step.path.name, n=2, lineterm=""
        )
        return list(lines)


def read_recipes() -> List[Recipe]:
    """Read all recipes' names and steps from their folders; nothing of them is imported.

    >>> [recipe.name for recipe in read_recipes()]
    ['first_port']
    """
    found = []
    for folder in sorted(RECIPES_FOLDER.iterdir()):
        matches = {path: _STEP_FILE.fullmatch(path.name) for path in folder.glob("step_*.py")}
        steps = [RecipeStep(int(match[1]), match[2], path) for path, match in matches.items() if match]
        if steps:
            found.append(Recipe(folder, tuple(sorted(steps, key=lambda step: step.number))))
    return found


def find_recipe(name: str) -> Recipe:
    """Find a recipe by its name; PortingError R001 with the nearest names when there is none.

    >>> find_recipe("first_port").steps[1].name
    'loss_in_forward'
    """
    recipes = {recipe.name: recipe for recipe in read_recipes()}
    if name in recipes:
        return recipes[name]
    close = difflib.get_close_matches(name, recipes)
    raise PortingError.of(
        "R001",
        notes=f"asked for: `{name}`; there is: {', '.join(recipes)}",
        help=f"did you mean `{close[0]}`?" if close else "`porting recipe list` says what each recipe shows",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    _add_action(actions, "list", "list the recipes and their steps")

    show = _add_action(actions, "show", "print a recipe's story, a step's source, or what a step changes")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--step", type=int, metavar="N", help="print the source of step N instead of the story")
    show.add_argument("--diff", action="store_true", help="print what changes from the step before (or in all steps)")

    run_parser = _add_action(actions, "run", "run a recipe, or one of its steps, and print the losses")
    run_parser.add_argument("name", metavar="NAME")
    run_parser.add_argument("--step", type=int, metavar="N", help="run step N only")
    run_parser.add_argument(
        "--steps", type=count, default=10, metavar="COUNT", help="optimizer steps to train (default: 10)"
    )

    copy = _add_action(actions, "copy", "copy a recipe's programs to a new folder, to change them")
    copy.add_argument("name", metavar="NAME")
    copy.add_argument("destination", metavar="DEST", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for.

    Raises PortingError: R001 for a recipe that there is not, R002 for a destination that exists, R003 for a step that
    fails, X001 when a package of the extra `recipes` is missing.
    """
    if arguments.action == "list":
        return _list(as_json=arguments.format == "json")
    recipe = find_recipe(arguments.name)
    if arguments.action == "copy":
        return _copy(recipe, arguments.destination)
    if arguments.step is not None and arguments.step not in [step.number for step in recipe.steps]:
        known = ", ".join(str(step.number) for step in recipe.steps)
        print(f"porting recipe: `{recipe.name}` has no step {arguments.step}; it has {known}", file=sys.stderr)
        return EXIT_USAGE
    steps = [step for step in recipe.steps if arguments.step in (None, step.number)]
    if arguments.action == "run":
        return _run(steps, num_steps=arguments.steps, as_json=arguments.format == "json")
    if arguments.diff:
        return _show_diffs(recipe, steps)
    print((steps[0].source if arguments.step is not None else recipe.readme.read_text(encoding="utf-8")).rstrip())
    return EXIT_DONE


def _add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    # the command's own option, after the action as well: the default must not overwrite what stood before
    parser.add_argument("--format", choices=FORMATS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _first_line_of_docstring(source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "").split("\n", 1)[0].rstrip(".")


# -- list and show ---------------------------------------------------------------------------------------------------


def _list(*, as_json: bool) -> int:
    recipes = read_recipes()
    if as_json:
        print(json.dumps([_as_dict(recipe) for recipe in recipes], indent=2))
        return EXIT_DONE
    for recipe in recipes:
        print(f"{recipe.name}\n  {recipe.summary}")
        width = max(len(step.name) for step in recipe.steps)
        for step in recipe.steps:
            print(f"  {step.number}  {step.name:<{width}}  {step.summary}")
    return EXIT_DONE


def _as_dict(recipe: Recipe) -> Dict[str, object]:
    steps = [{"number": step.number, "name": step.name, "summary": step.summary} for step in recipe.steps]
    return {"name": recipe.name, "summary": recipe.summary, "steps": steps}


def _show_diffs(recipe: Recipe, steps: Sequence[RecipeStep]) -> int:
    if list(steps) == [recipe.steps[0]]:
        print(f"porting recipe: no step comes before step {steps[0].number}", file=sys.stderr)
        return EXIT_USAGE
    paint = _is_coloured_terminal()
    for step in steps:
        for line in recipe.diff_of(step):
            print(_painted(line) if paint else line)
    return EXIT_DONE


def _is_coloured_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _painted(line: str) -> str:
    colours = {"+": _GREEN, "-": _RED, "@": _CYAN}
    return f"{colours[line[0]]}{line}{_PLAIN}" if line[:1] in colours else line


# -- run -------------------------------------------------------------------------------------------------------------


def _run(steps: Sequence[RecipeStep], *, num_steps: int, as_json: bool) -> int:
    losses = {}
    for step in steps:
        # not a bar: each step shows the bar of its compilation
        if sys.stderr.isatty():
            print(f"step {step.number}: {step.summary}", file=sys.stderr)
        losses[step.number] = _train(step, num_steps)
    if as_json:
        print(json.dumps([{"number": number, "losses": values} for number, values in losses.items()], indent=2))
    else:
        print("\n".join(_table(losses)))
    return EXIT_DONE


def _train(step: RecipeStep, num_steps: int) -> List[float]:
    try:
        return list(importlib.import_module(step.module).train(num_steps))
    except PortingError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA_MODULES:
            raise
        raise PortingError.of(
            "X001",
            notes=f"step {step.number} (`{step.name}`) imports `{error.name}`",
            help='pip install "ipu-porting[recipes]"',
        ) from error
    except Exception as error:
        traceback.print_exc()
        fault = f"step {step.number} (`{step.name}`) raised {type(error).__name__}"
        folder = step.path.parent.name
        raise PortingError.of(
            "R003",
            notes=fault,
            help=f"run it by itself: `porting recipe copy {folder} DEST`, then change {step.path.name}",
        ) from error


def _table(losses: Dict[int, List[float]]) -> Iterator[str]:
    """Lay losses out with a column for each step of the recipe, and how far each is from the column before."""
    yield "  step" + "".join(f"{f'step_{number}':>10}" for number in losses)
    for index, row in enumerate(zip(*losses.values())):
        yield f"{index + 1:>6}" + "".join(f"{loss:>10.6f}" for loss in row)
    if len(losses) > 1:
        columns = list(losses.values())
        differences = [_largest_difference(before, after) for before, after in zip(columns, columns[1:])]
        yield ""
        yield "largest relative difference from the column before:"
        yield " " * 16 + "".join(f"{difference:>10.1e}" for difference in differences)


def _largest_difference(before: Iterable[float], after: Iterable[float]) -> float:
    return max(abs(one - other) / max(abs(one), sys.float_info.min) for one, other in zip(before, after))


# -- copy ------------------------------------------------------------------------------------------------------------


def _copy(recipe: Recipe, destination: Path) -> int:
    """Copy programs and story beside the destination and rename them at the end: there is all of it, or nothing."""
    if os.path.lexists(destination):
        raise _destination_exists(destination)
    parent = destination.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{recipe.name}-", dir=parent) as folder:
        copied = Path(folder) / recipe.name
        copied.mkdir()
        for path in [recipe.readme, *(step.path for step in recipe.steps)]:
            shutil.copyfile(path, copied / path.name)
        copied.rename(destination)
    print(f"{len(recipe.steps)} programs and README.md are in {destination}; run one:")
    print(f"  python {destination / recipe.steps[0].path.name}")
    return EXIT_DONE


def _destination_exists(destination: Path) -> PortingError:
    return PortingError.of(
        "R002", notes=f"there is: {destination}", help="name a folder that does not exist yet, or move this one away"
    )
