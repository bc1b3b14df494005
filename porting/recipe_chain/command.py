"""Run `porting recipe`: list, show, run, check, copy or begin step-by-step ports, each a chain of small programs."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from porting.cli import EXIT_DONE, EXIT_FAILED, add_action, count, refuse_usage
from porting.cli.completion import offer
from porting.cli.swept_commands import CommandCase, add_sweep_arguments, print_sweep, sweep_commands
from porting.comparison import largest_difference
from porting.diagnostics import ExecutableError, PortingError, find_width, has_colours, paint, say_number, show
from porting.recipe_chain.recipe_files import (
    Recipe,
    RecipeStep,
    copy_recipe,
    create_folder,
    find_recipe,
    read_recipes,
    require_new,
)

__all__ = ["add_arguments", "run"]

_MIN_TEXT_WIDTH = 20
_CLEARED_LINE = "\r\033[K"

_EPILOG = """\
a session:
  $ porting recipe list
  $ porting recipe show first_port --step 1 --diff
  $ porting recipe run first_port --check
  $ porting recipe run --all --check --on local:2
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
    add_action(actions, "list", "list the recipes and their steps")

    show = add_action(actions, "show", "print a recipe's story, a step's source, or what a step changes")
    show.add_argument("--step", type=int, metavar="N", help="print the source of step N instead of the story")
    show.add_argument("--workload", action="store_true", help="print what all steps share instead of the story")
    show.add_argument("--diff", action="store_true", help="print what changes from the step before (or in all steps)")

    run_parser = add_action(actions, "run", "run a recipe, or one of its steps, and print the losses")
    run_parser.add_argument("--step", type=int, metavar="N", help="run step N only")
    what = run_parser.add_mutually_exclusive_group()
    steps_help = "optimizer steps to train (default: %(default)s)"
    what.add_argument("--steps", type=count, default=10, metavar="COUNT", help=steps_help)
    what.add_argument("--check", action="store_true", help="check each step for what the recipe says of it")
    swept = add_sweep_arguments(run_parser, "several recipes with --check, each in a process of its own")
    swept.add_argument("--all", action="store_true", help="check all recipes that there are")
    swept.add_argument("--out", type=Path, metavar="FOLDER", help="keep what came of each, to go on after a kill")

    copy = add_action(actions, "copy", "copy a recipe to a new folder, to change it")

    new = add_action(actions, "new", "begin a recipe for a model of yours, in a new folder")
    new.add_argument("destination", metavar="NAME", type=Path)
    model_help = "`file.py:name` or `module:name` of a function that gives (model, loss, (inputs, labels))"
    new.add_argument("--model", metavar="PROGRAM:FUNCTION", help=f"{model_help}, and if need be an optimizer")
    batch_help = "samples of a batch of that model (default: the target's)"
    new.add_argument("--batch", type=count, metavar="N", help=batch_help)

    pictures = add_action(actions, "pictures", "draw a recipe's pictures again, into a new folder")
    for action in (show, run_parser, copy, pictures):
        several: Mapping[str, Any] = {"dest": "names", "nargs": "*"} if action is run_parser else {"dest": "name"}
        offer(action.add_argument(metavar="NAME", **several), lambda: [recipe.name for recipe in read_recipes()])
    for action in (copy, pictures):
        action.add_argument("destination", metavar="DEST", type=Path)


def run(arguments: argparse.Namespace) -> int:
    """List, show, run, check, copy or begin a recipe.

    Raises PortingError: R001 for an unknown recipe, R002 for a destination that exists or cannot be written,
    R003 for a step that fails, R004 for a part that the recipe lacks or that fails, X001 when a package of an extra is
    missing.
    """
    as_json = arguments.format == "json"
    if arguments.action == "list":
        return _show_recipes(as_json=as_json)
    if arguments.action == "new":
        return _begin_recipe(arguments.destination, arguments.model, arguments.batch)
    if arguments.action == "run":
        names = [recipe.name for recipe in read_recipes()] if arguments.all else arguments.names
        if len(names) != 1 or any((arguments.on, arguments.out, arguments.resume)):
            return _check_recipes(names, arguments)
        arguments.name = names[0]
    recipe = find_recipe(arguments.name)
    if arguments.action == "copy":
        num_others = len(copy_recipe(recipe, arguments.destination)) - len(recipe.steps)
        print(f"{len(recipe.steps)} programs and {num_others} other files are in {arguments.destination}; run one:")
        print(f"  python {arguments.destination / recipe.steps[0].path.name}")
        return EXIT_DONE
    if arguments.action == "pictures":
        return _draw_pictures(recipe, arguments.destination)
    steps = [step for step in recipe.steps if arguments.step in (None, step.number)]
    if not steps:
        known = ", ".join(str(step.number) for step in recipe.steps)
        return refuse_usage("recipe", f"`{recipe.name}` has no step {arguments.step}; it has {known}")
    if arguments.action == "show":
        return _show_part(recipe, steps, arguments)
    if arguments.check:
        return _check_steps(recipe, steps, as_json=as_json)
    return _run_steps(recipe, steps, num_steps=arguments.steps, as_json=as_json)


def _load_module(module: str) -> Any:
    """Import what needs torch, which listing and showing do not."""
    return importlib.import_module(f"porting.recipe_chain.{module}")


# -- list and show ---------------------------------------------------------------------------------------------------


def _show_recipes(*, as_json: bool) -> int:
    recipes = read_recipes()
    if as_json:
        listed = []
        for recipe in recipes:
            steps = [{"number": step.number, "name": step.name, "summary": step.summary} for step in recipe.steps]
            listed.append({"name": recipe.name, "summary": recipe.summary, "steps": steps})
        print(json.dumps(listed, indent=2))
        return EXIT_DONE
    for recipe in recipes:
        print(f"{recipe.name}\n  {recipe.summary}")
        longest = max(len(step.name) for step in recipe.steps)
        for step in recipe.steps:
            name = f"  {step.number:<2} {step.name:<{longest}}  "
            width = find_width(sys.stdout)
            if width is not None:
                room = max(width, len(name) + _MIN_TEXT_WIDTH)
                print(textwrap.fill(step.summary, room, initial_indent=name, subsequent_indent=" " * len(name)))
            else:
                print(name + step.summary)
    return EXIT_DONE


def _show_part(recipe: Recipe, steps: Sequence[RecipeStep], arguments: argparse.Namespace) -> int:
    """Print the shared program, the changes of steps, the source of one step, or the story."""
    if arguments.diff and not arguments.workload:
        return _show_diffs(recipe, steps)
    if arguments.workload:
        file, part, remedy = recipe.workload, "`workload.py`", "its steps share no file; `--step N` prints a program"
    elif arguments.step is not None:
        file, part, remedy = steps[0].path, "step", ""
    else:
        file, part = recipe.readme, "story, `README.md`"
        remedy = "`--step N` prints a program, `--diff` what steps change"
    if not file.exists():
        raise _make_missing_part_error(recipe, part, remedy)
    print(file.read_text(encoding="utf-8").rstrip())
    return EXIT_DONE


def _show_diffs(recipe: Recipe, steps: Sequence[RecipeStep]) -> int:
    if list(steps) == [recipe.steps[0]]:
        return refuse_usage("recipe", f"no step comes before step {steps[0].number}")
    colours = {"+": "green", "-": "red", "@": "cyan"} if has_colours(sys.stdout) else {}
    for step in steps:
        for line in recipe.diff_of(step):
            print(paint(line, colours[line[0]]) if line[:1] in colours else line)
    return EXIT_DONE


# -- run -------------------------------------------------------------------------------------------------------------


def _run_steps(recipe: Recipe, steps: Sequence[RecipeStep], *, num_steps: int, as_json: bool) -> int:
    losses: Dict[int, List[float]] = {}
    with _load_module("steps").Steps(recipe) as modules:
        for step in steps:
            # not a bar: each step shows the bar of its compilation
            if sys.stderr.isatty():
                print(f"step {step.number}: {step.summary}", file=sys.stderr)
            with _load_module("checks").report_failures_of(recipe, step.path.name):
                losses[step.number] = list(modules.module(step.number).train(num_steps))
    if as_json:
        print(json.dumps([{"number": number, "losses": values} for number, values in losses.items()], indent=2))
    else:
        print("\n".join(_lay_out_losses(losses)))
    return EXIT_DONE


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
    running, numbers = _load_module("checks"), [step.number for step in steps]
    records = []
    with _load_module("steps").Steps(recipe) as modules:
        checks = [check for check in running.read_checks(recipe, modules) if check.step in numbers]
        if not checks:
            listed = ", ".join(map(str, numbers))
            raise _make_missing_part_error(recipe, f"check for step {listed}", "add one to `CHECKS` in its `checks.py`")
        for check in checks:
            _say_what_runs(f"step {check.step}: {check.text} ...")
            outcome = running.run_check(check, modules)
            record = {"step": check.step, "text": check.text, "is_met": outcome.is_met, "found": outcome.found}
            records.append({**record, "seconds": round(outcome.seconds, 3)})
            _say_what_runs("")
            if not as_json:
                word = "ok    " if outcome.is_met else "FAILED"
                show(f"{word} step {check.step}: {check.text}: {outcome.found} ({outcome.seconds:.1f} s)")
            if outcome.trouble:
                print(outcome.trouble.rstrip(), file=sys.stderr)
    num_failed = sum(not record["is_met"] for record in records)
    if as_json:
        print(json.dumps(records, indent=2))
    else:
        all_hold = "it holds" if len(records) == 1 else "all hold"
        told = f"{num_failed} FAILED" if num_failed else all_hold
        print(f"{say_number(len(records), 'check')} of {recipe.name}: {told}")
    return EXIT_FAILED if num_failed else EXIT_DONE


def _check_recipes(names: Sequence[str], arguments: argparse.Namespace) -> int:
    """Check several recipes, each a case of a sweep."""
    if not names:
        return refuse_usage("recipe", "name a recipe, or ask for `--all`")
    if not arguments.check or arguments.step is not None or (arguments.all and arguments.names):
        return refuse_usage("recipe", "a sweep checks whole recipes: some NAMEs or `--all`, with `--check`")
    if arguments.resume and arguments.out is None:
        return refuse_usage("recipe", "--resume goes on with the folder of --out: name it")
    for name in names:
        find_recipe(name)
    cases = [CommandCase(name, ("recipe", "run", name, "--check", "--format=json")) for name in dict.fromkeys(names)]
    swept = sweep_commands(arguments.on, cases, _judge_checks, folder=arguments.out, resumes=arguments.resume)
    print_sweep(swept, arguments.format)
    return swept.exit_status


def _judge_checks(_case: CommandCase, output: str) -> Mapping[str, Any]:
    failed = [f"step {check['step']}: {check['found']}" for check in json.loads(output) if not check["is_met"]]
    return {"verdict": "FAILED" if failed else "ok", "reason": "; ".join(failed)}


def _say_what_runs(text: str) -> None:
    """Show on a terminal what is being checked, in a line that the outcome replaces."""
    if sys.stderr.isatty():
        print(f"{_CLEARED_LINE}{text}", end="", file=sys.stderr, flush=True)


# -- new and pictures ------------------------------------------------------------------------------------------------


def _begin_recipe(destination: Path, target: Optional[str], batch_size: Optional[int]) -> int:
    if target is None and batch_size is not None:
        return refuse_usage("recipe", "`--batch` is for a model of yours, `--model PROGRAM:FUNCTION`")
    # before a model of minutes is loaded
    require_new(destination)
    user = None if target is None else _load_user_model(target, batch_size)
    _load_module("new_recipe").write_recipe(destination, user)
    print(f"the steps are in {destination}; `workload.py` in it is what is yours; try them:")
    path = destination if destination.is_absolute() else os.path.join(".", destination)
    print(f"  porting recipe run {path} --check")
    return EXIT_DONE


def _load_user_model(text: str, batch_size: Optional[int]) -> Any:
    """Load `text`, as in `train.py:make`, with the import by which another program gets it; E022 if none can.

    A function of the user's is called once, with `batch_size` if it takes one.
    """
    programs = importlib.import_module("porting.cli.programs")
    outline = programs.ProgramName.of(text)
    if programs.is_reference_model(outline):
        raise ExecutableError.of(
            "E022",
            message=f"`{text}` is a reference model, for which a recipe of your own has no file",
            help=f"write a function that returns it with its loss and a batch: `porting.models.build({text!r})`",
        )
    program = programs.load_program(text, batch_size=batch_size)
    path = Path(outline.source).resolve()
    folder, module = (path.parent, path.stem) if outline.is_file else (Path(os.getcwd()), outline.source)
    value: Any = None
    if all(part.isidentifier() for part in module.split(".")):
        value = sys.modules.get(module) or importlib.import_module(module)
    is_other = outline.is_file and Path(str(getattr(value, "__file__", ""))).resolve() != path
    # a new recipe has a `workload` of its own, which is where the import stands
    if value is None or is_other or module == "workload":
        raise ExecutableError.of(
            "E022",
            message=f"a program cannot import `{path.name}` by its name",
            notes=f"`import {module}` is not Python" if value is None else f"`import {module}` gives another module",
            help="rename the file, as in `own_model.py`",
        )
    return _load_module("new_recipe").UserModel(
        text=text,
        module=module,
        attribute=outline.attribute,
        folder=folder,
        is_called=program.call is not None,
        size_name=next(iter(program.call or {}), None),
        has_optimizer=program.optimizer is not None,
        **{name: getattr(program, name) for name in ("made", "model", "loss", "batch")},
    )


def _draw_pictures(recipe: Recipe, destination: Path) -> int:
    if not (recipe.folder / "pictures.py").exists():
        raise _make_missing_part_error(
            recipe, "program `pictures.py`", "its `draw(folder)` draws into a folder, and lists the files"
        )
    with create_folder(destination) as folder, _load_module("steps").Steps(recipe) as modules:
        with _load_module("checks").report_failures_of(recipe, "pictures.py"):
            drawn = modules.load("pictures").draw(folder)
    for picture in drawn:
        print(destination / Path(picture).name)
    return EXIT_DONE


def _make_missing_part_error(recipe: Recipe, part: str, remedy: str) -> PortingError:
    message = f"the recipe `{recipe.name}` has no {part}"
    return PortingError.of("R004", message=message, notes=f"looked for in {recipe.folder}", help=remedy)
