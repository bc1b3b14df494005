"""`porting recipe`: list, show, run, check, copy and begin the step-by-step ports, each a chain of small programs."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, count
from porting.comparison import largest_difference
from porting.diagnostics import FORMATS, PortingError
from porting.recipe_chain.copying import copy_recipe, create_folder
from porting.recipe_chain.recipe_files import Recipe, RecipeStep, find_recipe, read_recipes

__all__ = ["add_arguments", "run"]

DEFAULT_NUM_STEPS = 10

_RED, _GREEN, _CYAN, _PLAIN = "\033[31m", "\033[32m", "\033[36m", "\033[0m"
_MIN_TEXT_WIDTH = 20
_CLEARED_LINE = "\r\033[K"

_EPILOG = """\
a session:
  $ porting recipe list
  $ porting recipe show first_port --step 1 --diff
  $ porting recipe run first_port --check
  $ porting recipe copy first_port my_port
  $ python my_port/step_0_plain.py
  $ porting recipe new my_model --model train.py:make
  $ porting recipe run ./my_model --check

NAME is the name of a recipe or the path of a folder of steps.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    _add_action(actions, "list", "list the recipes and their steps")

    show = _add_action(actions, "show", "print a recipe's story, a step's source, or what a step changes")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--step", type=int, metavar="N", help="print the source of step N instead of the story")
    show.add_argument("--workload", action="store_true", help="print what all steps share instead of the story")
    show.add_argument("--diff", action="store_true", help="print what changes from the step before (or in all steps)")

    run_parser = _add_action(actions, "run", "run a recipe, or one of its steps, and print the losses")
    run_parser.add_argument("name", metavar="NAME")
    run_parser.add_argument("--step", type=int, metavar="N", help="run step N only")
    what = run_parser.add_mutually_exclusive_group()
    what.add_argument(
        "--steps",
        type=count,
        default=DEFAULT_NUM_STEPS,
        metavar="COUNT",
        help=f"optimizer steps to train (default: {DEFAULT_NUM_STEPS})",
    )
    what.add_argument("--check", action="store_true", help="check each step for what the recipe says of it")

    copy = _add_action(actions, "copy", "copy a recipe to a new folder, to change it")
    copy.add_argument("name", metavar="NAME")
    copy.add_argument("destination", metavar="DEST", type=Path)

    new = _add_action(actions, "new", "begin a recipe for a model of yours, in a new folder")
    new.add_argument("destination", metavar="NAME", type=Path)
    new.add_argument(
        "--model",
        metavar="PROGRAM:FUNCTION",
        help="`file.py:name` or `module:name` of a function that gives (model, loss, (inputs, labels)), and if need be "
        "an optimizer",
    )
    new.add_argument(
        "--batch", type=count, metavar="N", help="samples of a batch of that model (default: the target's)"
    )

    pictures = _add_action(actions, "pictures", "draw a recipe's pictures again, into a new folder")
    pictures.add_argument("name", metavar="NAME")
    pictures.add_argument("destination", metavar="DEST", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for.

    Raises PortingError: R001 for a recipe that there is not, R002 for a destination that exists or cannot be written,
    R003 for a step that fails, R004 for a part that the recipe lacks or that fails, X001 when a package of an extra is
    missing.
    """
    as_json = arguments.format == "json"
    if arguments.action == "list":
        return _list_recipes(as_json=as_json)
    if arguments.action == "new":
        return _begin_recipe(arguments.destination, arguments.model, arguments.batch)
    recipe = find_recipe(arguments.name)
    if arguments.action == "copy":
        return _copy_for_user(recipe, arguments.destination)
    if arguments.action == "pictures":
        return _draw_pictures(recipe, arguments.destination)
    if arguments.step is not None and arguments.step not in [step.number for step in recipe.steps]:
        known = ", ".join(str(step.number) for step in recipe.steps)
        print(f"porting recipe: `{recipe.name}` has no step {arguments.step}; it has {known}", file=sys.stderr)
        return EXIT_USAGE
    steps = [step for step in recipe.steps if arguments.step in (None, step.number)]
    if arguments.action == "show" and arguments.workload:
        return _show_workload(recipe)
    if arguments.action == "show":
        return _show_story_or_source(recipe, steps, diff=arguments.diff, is_one=arguments.step is not None)
    if arguments.check:
        return _check_steps(recipe, steps, as_json=as_json)
    return _run_steps(recipe, steps, num_steps=arguments.steps, as_json=as_json)


def _add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    # the command's own option, after the action as well: the default must not overwrite what stood before
    parser.add_argument("--format", choices=FORMATS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _load_module(module: str) -> Any:
    """Import what needs torch, which listing and showing do not."""
    return importlib.import_module(f"porting.recipe_chain.{module}")


# -- list and show ---------------------------------------------------------------------------------------------------


def _list_recipes(*, as_json: bool) -> int:
    recipes = read_recipes()
    if as_json:
        print(json.dumps([_describe_recipe(recipe) for recipe in recipes], indent=2))
        return EXIT_DONE
    for recipe in recipes:
        print(f"{recipe.name}\n  {recipe.summary}")
        width = max(len(step.name) for step in recipe.steps)
        for step in recipe.steps:
            print(_wrap_for_terminal(f"  {step.number:<2} {step.name:<{width}}  ", step.summary))
    return EXIT_DONE


def _wrap_for_terminal(name: str, text: str) -> str:
    """Put `text` behind `name`, in several lines where a terminal has no room for it in one."""
    if not sys.stdout.isatty():
        return name + text
    width = max(shutil.get_terminal_size().columns, len(name) + _MIN_TEXT_WIDTH)
    return textwrap.fill(text, width, initial_indent=name, subsequent_indent=" " * len(name))


def _describe_recipe(recipe: Recipe) -> Dict[str, object]:
    steps = [{"number": step.number, "name": step.name, "summary": step.summary} for step in recipe.steps]
    return {"name": recipe.name, "summary": recipe.summary, "steps": steps}


def _show_story_or_source(recipe: Recipe, steps: Sequence[RecipeStep], *, diff: bool, is_one: bool) -> int:
    if diff:
        return _show_diffs(recipe, steps)
    if not is_one and not recipe.readme.exists():
        raise _missing_part_error(
            recipe, "story, `README.md`", "`--step N` prints a program, `--diff` what steps change"
        )
    print((steps[0].source if is_one else recipe.readme.read_text(encoding="utf-8")).rstrip())
    return EXIT_DONE


def _show_workload(recipe: Recipe) -> int:
    if not recipe.workload.exists():
        raise _missing_part_error(recipe, "`workload.py`", "its steps share no file; `--step N` prints a program")
    print(recipe.workload.read_text(encoding="utf-8").rstrip())
    return EXIT_DONE


def _show_diffs(recipe: Recipe, steps: Sequence[RecipeStep]) -> int:
    if list(steps) == [recipe.steps[0]]:
        print(f"porting recipe: no step comes before step {steps[0].number}", file=sys.stderr)
        return EXIT_USAGE
    paint = _is_coloured_terminal()
    for step in steps:
        for line in recipe.diff_of(step):
            print(_colour_line(line) if paint else line)
    return EXIT_DONE


def _is_coloured_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _colour_line(line: str) -> str:
    colours = {"+": _GREEN, "-": _RED, "@": _CYAN}
    return f"{colours[line[0]]}{line}{_PLAIN}" if line[:1] in colours else line


# -- run -------------------------------------------------------------------------------------------------------------


def _run_steps(recipe: Recipe, steps: Sequence[RecipeStep], *, num_steps: int, as_json: bool) -> int:
    losses = {}
    with _load_module("steps").Steps(recipe) as modules:
        for step in steps:
            # not a bar: each step shows the bar of its compilation
            if sys.stderr.isatty():
                print(f"step {step.number}: {step.summary}", file=sys.stderr)
            losses[step.number] = _train_step(step, num_steps, modules)
    if as_json:
        print(json.dumps([{"number": number, "losses": values} for number, values in losses.items()], indent=2))
    else:
        print("\n".join(_lay_out_losses(losses)))
    return EXIT_DONE


def _train_step(step: RecipeStep, num_steps: int, modules: Any) -> List[float]:
    with _load_module("running").report_failures_of(modules.recipe, step.path.name):
        return list(modules.module(step.number).train(num_steps))


def _lay_out_losses(losses: Dict[int, List[float]]) -> Iterator[str]:
    """Lay losses out with a column for each step of the recipe, and how far each is from the column before."""
    yield "  step" + "".join(f"{f'step_{number}':>10}" for number in losses)
    for index, row in enumerate(zip(*losses.values())):
        yield f"{index + 1:>6}" + "".join(f"{loss:>10.6f}" for loss in row)
    if len(losses) > 1:
        columns = list(losses.values())
        differences = [largest_difference(before, after)[0] for before, after in zip(columns, columns[1:])]
        yield ""
        yield "largest relative difference from the column before:"
        yield " " * 16 + "".join(f"{difference:>10.1e}" for difference in differences)


# -- check -----------------------------------------------------------------------------------------------------------


def _check_steps(recipe: Recipe, steps: Sequence[RecipeStep], *, as_json: bool) -> int:
    running, numbers = _load_module("running"), [step.number for step in steps]
    outcomes = []
    with _load_module("steps").Steps(recipe) as modules:
        checks = [check for check in running.read_checks(recipe, modules) if check.step in numbers]
        if not checks:
            listed = ", ".join(map(str, numbers))
            raise _missing_part_error(recipe, f"check for step {listed}", "add one to `CHECKS` in its `checks.py`")
        for check in checks:
            _say_what_runs(f"step {check.step}: {check.text} ...")
            outcomes.append(running.run_check(check, modules))
            _say_what_runs("")
            if not as_json:
                print(_describe_outcome(outcomes[-1]), flush=True)
            if outcomes[-1].trouble:
                print(outcomes[-1].trouble.rstrip(), file=sys.stderr)
    num_failed = sum(not outcome.is_met for outcome in outcomes)
    if as_json:
        print(json.dumps([_outcome_as_dict(outcome) for outcome in outcomes], indent=2))
    else:
        number = "1 check" if len(outcomes) == 1 else f"{len(outcomes)} checks"
        all_hold = "it holds" if len(outcomes) == 1 else "all hold"
        print(f"{number} of {recipe.name}: {f'{num_failed} FAILED' if num_failed else all_hold}")
    return EXIT_FAILED if num_failed else EXIT_DONE


def _say_what_runs(text: str) -> None:
    """Tell a terminal what is being checked, in a line that the outcome takes the place of."""
    if sys.stderr.isatty():
        print(f"{_CLEARED_LINE}{text}", end="", file=sys.stderr, flush=True)


def _describe_outcome(outcome: Any) -> str:
    word, check = "ok    " if outcome.is_met else "FAILED", outcome.check
    return f"{word} step {check.step}: {check.text}: {outcome.found} ({outcome.seconds:.1f} s)"


def _outcome_as_dict(outcome: Any) -> Dict[str, object]:
    return {
        "step": outcome.check.step,
        "text": outcome.check.text,
        "is_met": outcome.is_met,
        "found": outcome.found,
        "seconds": round(outcome.seconds, 3),
    }


# -- copy and pictures -----------------------------------------------------------------------------------------------


def _copy_for_user(recipe: Recipe, destination: Path) -> int:
    files = copy_recipe(recipe, destination)
    print(
        f"{len(recipe.steps)} programs and {len(files) - len(recipe.steps)} other files are in {destination}; run one:"
    )
    print(f"  python {destination / recipe.steps[0].path.name}")
    return EXIT_DONE


def _begin_recipe(destination: Path, target: Optional[str], batch_size: Optional[int]) -> int:
    if target is None and batch_size is not None:
        print("porting recipe: `--batch` is for a model of yours, `--model PROGRAM:FUNCTION`", file=sys.stderr)
        return EXIT_USAGE
    user = None
    if target is not None:
        user = importlib.import_module("porting.cli.recipe_programs").load_user_model(target, batch_size=batch_size)
    _load_module("new_recipe").write_recipe(destination, user)
    print(f"the steps are in {destination}; `workload.py` in it is what is yours; try them:")
    print(
        f"  porting recipe run {destination if destination.is_absolute() else os.path.join('.', destination)} --check"
    )
    return EXIT_DONE


def _draw_pictures(recipe: Recipe, destination: Path) -> int:
    if not (recipe.folder / "pictures.py").exists():
        raise _missing_part_error(
            recipe, "program `pictures.py`", "its `draw(folder)` draws into a folder, and lists the files"
        )
    with create_folder(destination) as folder, _load_module("steps").Steps(recipe) as modules:
        with _load_module("running").report_failures_of(recipe, "pictures.py"):
            drawn = modules.load("pictures").draw(folder)
    for picture in drawn:
        print(destination / Path(picture).name)
    return EXIT_DONE


def _missing_part_error(recipe: Recipe, part: str, remedy: str) -> PortingError:
    message = f"the recipe `{recipe.name}` has no {part}"
    return PortingError.of("R004", message=message, notes=f"looked for in {recipe.folder}", help=remedy)
