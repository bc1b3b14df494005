"""Run a recipe's checks: each has an outcome, even if the step fails or ends the process."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from pathlib import Path
from typing import Any, Iterator, NoReturn, Optional, Sequence, Tuple

from porting.diagnostics import PortingError, render, take_first_line
from porting.recipe_chain.checks import Check, Outcome
from porting.recipe_chain.recipe_files import Recipe, RecipeStep
from porting.recipe_chain.steps import DEFAULT_NUM_STEPS, CheckFailed, Steps

__all__ = ["EXTRA_OF_MODULE", "read_checks", "report_failures_of", "run_check"]

EXTRA_OF_MODULE = {
    "sklearn": "recipes",
    "h5py": "recipes",
    "matplotlib": "recipes",
    "transformers": "hf",
    "accelerate": "accelerate",
    "ignite": "ignite",
    "lightning": "lightning",
}
"""Modules that recipes may import beyond the core's, and the extra of this package that brings each."""


def read_checks(recipe: Recipe, steps: Steps) -> Tuple[Check, ...]:
    """Import `checks.py` of a recipe, tell `steps` its NUM_STEPS, and return its CHECKS.

    Raises PortingError: R004 when there are none, they fail, or one is for a step that there is not, R003 when a step
    fails that they import, X001 when a package is missing that they need.
    """
    if not (recipe.folder / "checks.py").exists():
        _refuse_checks(recipe, "there is no `checks.py`")
    with report_failures_of(recipe, "checks.py"):
        module = steps.load("checks")
    steps.num_steps = getattr(module, "NUM_STEPS", DEFAULT_NUM_STEPS)
    checks: Sequence[Any] = tuple(getattr(module, "CHECKS", ()))
    if not checks:
        _refuse_checks(recipe, "`checks.py` has no table `CHECKS`")
    numbers = [step.number for step in recipe.steps]
    present = f"and the steps are {', '.join(map(str, numbers))}"
    for check in checks:
        if not isinstance(check, Check):
            _refuse_checks(recipe, f"`CHECKS` holds a {type(check).__name__} in the place of a check")
        if check.step not in numbers:
            _refuse_checks(recipe, f"a check is for step {check.step}, {present}")
        if check.like is not None and check.like not in numbers:
            _refuse_checks(recipe, f"a check of step {check.step} is like step {check.like}, {present}")
    # a chain of steps is listed at its first one
    return tuple(sorted(checks, key=lambda check: check.step))


def run_check(check: Check, steps: Steps) -> Outcome:
    """Run one check; an error in the step is an outcome as well, with its text.

    What a step prints, with progress bars and notes, becomes part of the outcome if the check fails. Raises
    PortingError X001 when a package is missing that the step imports.
    """
    start, printed = time.perf_counter(), io.StringIO()

    def outcome(is_met: bool, found: str, trouble: str = "") -> Outcome:
        seconds = time.perf_counter() - start
        return Outcome(check, is_met, found, seconds, "" if is_met else f"{printed.getvalue()}{trouble}")

    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            found = check.look(steps)
        return outcome(True, found)
    except CheckFailed as failure:
        return outcome(False, str(failure))
    except PortingError as error:
        if error.finding.code == "X001":
            raise
        return outcome(False, f"error {error.finding.code}", render(error.finding))
    except (Exception, SystemExit) as error:  # a program that ends itself has not been checked
        if isinstance(error, ModuleNotFoundError):
            _raise_missing_extra(error, f"step {check.step}")
        return outcome(False, f"raised {type(error).__name__}: {take_first_line(error)}", traceback.format_exc())


@contextlib.contextmanager
def report_failures_of(recipe: Recipe, file: str) -> Iterator[None]:
    """Print the traceback of an error in a program of a recipe, and raise a finding instead.

    Raises PortingError: X001 when a package of an extra is missing, R003 when a step fails, whichever program imports
    it, and R004 when `file` itself fails, such as `checks.py`. Findings and interrupts pass unchanged.
    """
    try:
        yield
    except PortingError:
        raise
    except (Exception, SystemExit) as error:  # a program that ends itself has not done what is asked of it
        failed = _find_step_that_raised(recipe, error)
        if isinstance(error, ModuleNotFoundError):
            _raise_missing_extra(error, _name_step(failed) if failed else file)
        traceback.print_exc()
        if failed is None and file not in [step.path.name for step in recipe.steps]:
            raise PortingError.of(
                "R004",
                message=f"`{file}` of the recipe `{recipe.name}` raised {type(error).__name__}",
                notes=take_first_line(error),
                help=f"repair {recipe.folder / file}; its error stands above",
            ) from error
        step = failed or next(step for step in recipe.steps if step.path.name == file)
        remedy = f"`python {step.path}`"
        if recipe.package is not None:
            remedy = f"`porting recipe copy {recipe.name} DEST`, then change {step.path.name}"
        raise PortingError.of(
            "R003", notes=f"{_name_step(step)} raised {type(error).__name__}", help=f"run it by itself: {remedy}"
        ) from error


def _name_step(step: RecipeStep) -> str:
    return f"step {step.number} (`{step.name}`)"


def _find_step_that_raised(recipe: Recipe, error: BaseException) -> Optional[RecipeStep]:
    """Return the innermost step in the traceback, or the step with the syntax error."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    steps = {str(step.path.resolve()): step for step in recipe.steps}
    found = [steps[path] for path in (str(Path(file).resolve()) for file in files) if path in steps]
    return found[-1] if found else None


def _raise_missing_extra(error: ModuleNotFoundError, importer: str) -> None:
    """Raise X001 if the module that `importer` did not find is of an extra; else do nothing."""
    extra = EXTRA_OF_MODULE.get((error.name or "").split(".")[0])
    if extra is not None:
        raise PortingError.of(
            "X001", notes=f"{importer} imports `{error.name}`", help=f'pip install "ipu-porting[{extra}]"'
        ) from error


def _refuse_checks(recipe: Recipe, fault: str) -> NoReturn:
    raise PortingError.of(
        "R004",
        message=f"the recipe `{recipe.name}` cannot be checked: {fault}",
        notes=f"looked for in {recipe.folder}",
        help="write `CHECKS = (equal_losses(1, like=0), ...)` with the constructors of `porting.recipe_chain`",
    )
