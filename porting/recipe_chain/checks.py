"""Check the steps of a recipe, by the table in its `checks.py`; `porting recipe` and the tests run them.

Each has an outcome, even if the step fails or ends the process.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Iterator, NoReturn, Optional, Sequence, Tuple

from porting.comparison import largest_difference
from porting.diagnostics import PortingError, render, say_kind, take_first_line
from porting.recipe_chain.recipe_files import Recipe, RecipeStep
from porting.recipe_chain.steps import DEFAULT_NUM_STEPS, CheckFailed, Steps

__all__ = [
    "EXTRA_OF_MODULE",
    "Check",
    "Outcome",
    "chain_of_equal_losses",
    "close_losses",
    "demand",
    "demand_equal",
    "demand_falling",
    "equal_losses",
    "holds",
    "measured",
    "reaches",
    "read_checks",
    "repeats",
    "report_failures_of",
    "run_check",
    "run_program",
]

EQUAL = 1e-5
"""How far losses that are equal may be from each other, relative to the larger one: rounding in float32."""


@dataclass(frozen=True)
class Check:
    """One check of a step: `look` returns the finding as text, or raises CheckFailed with it.

    `step` is the step's number, and `text` the demand, as in "losses equal step 0's". Quick tests leave out what is
    `slow`. `like` is the number of the step to compare with, if there is one.
    """

    step: int
    text: str
    look: Callable[[Steps], str]
    slow: bool = False
    like: Optional[int] = None


@dataclass(frozen=True)
class Outcome:
    """The result of a check: whether it holds, its finding, its time, and the text of an error."""

    check: Check
    is_met: bool
    found: str
    seconds: float
    trouble: str = ""


def equal_losses(
    step: int, *, like: int, relative: float = EQUAL, num_steps: Optional[int] = None, slow: bool = False
) -> Check:
    """Demand that the losses of `step` are those of the step `like`, up to rounding.

    Both train `num_steps` optimizer steps, by default the recipe's NUM_STEPS.

    >>> equal_losses(1, like=0).text
    "losses equal step 0's"
    """

    def look(steps: Steps) -> str:
        expected, found = steps.losses(like, num_steps), steps.losses(step, num_steps)
        demand(len(found) == len(expected), f"{len(found)} losses, and {len(expected)} of step {like}")
        return demand_equal(expected, found, relative=relative)

    return Check(step, f"losses equal step {like}'s", look, slow, like)


def chain_of_equal_losses(first: int, last: int, *, num_steps: Optional[int] = None) -> Tuple[Check, ...]:
    """Demand of each step from `first` to `last` the losses of the one before, up to rounding.

    >>> [check.text for check in chain_of_equal_losses(1, 2)]
    ["losses equal step 0's", "losses equal step 1's"]
    """
    return tuple(equal_losses(step, like=step - 1, num_steps=num_steps) for step in range(first, last + 1))


def repeats(step: int, *, num_steps: Optional[int] = None, slow: bool = False) -> Check:
    """Demand that a second training of `step` has the losses of the first, up to rounding.

    What a model draws from a generator of its own, no seed of a step sets, and no step is comparable with another.

    >>> repeats(0).text
    'a second training has the same losses'
    """

    def look(steps: Steps) -> str:
        once = steps.losses(step, num_steps)
        again = steps.call(step, lambda module: list(module.train(len(once))))
        try:
            return demand_equal(once, again)
        except CheckFailed as failure:
            raise CheckFailed(f"{failure}; {_ON_OWN_GENERATORS}") from None

    return Check(step, "a second training has the same losses", look, slow)


_ON_OWN_GENERATORS = (
    "the model or its data draw from what `seed_everything` cannot seed, as `numpy.random.default_rng()`, "
    "`random.Random()` or the system's: give such a generator a seed where it is made"
)


def close_losses(
    step: int, *, like: int, relative: float, because: str, num_steps: Optional[int] = None, slow: bool = False
) -> Check:
    """Demand that the losses of `step` are near those of the step `like`; `because` explains the difference.

    >>> close_losses(5, like=4, relative=0.05, because="BatchNorm sees 8 images").text
    "losses within 5% of step 4's (BatchNorm sees 8 images)"
    """
    check = equal_losses(step, like=like, relative=relative, num_steps=num_steps, slow=slow)
    return replace(check, text=f"losses within {relative * 100:g}% of step {like}'s ({because})")


def reaches(
    step: int,
    what: str,
    *,
    measure: Callable[[Any], float],
    at_least: Optional[float] = None,
    at_most: Optional[float] = None,
    slow: bool = False,
) -> Check:
    """Demand that the number that `measure` returns for the step's module is within bounds.

    A training is run once for all measures of the step, and gives its losses, too.

    >>> reaches(0, "test accuracy", at_least=0.95, measure=lambda step: step.accuracy()).text
    'test accuracy at least 0.95'
    """
    bounds = [f"at least {at_least:g}"] if at_least is not None else []
    bounds += [f"at most {at_most:g}"] if at_most is not None else []
    if not bounds:
        raise ValueError("`reaches` needs `at_least=` or `at_most=`")

    def look(steps: Steps) -> str:
        value = float(steps.measure(step, measure))
        low = -math.inf if at_least is None else at_least
        high = math.inf if at_most is None else at_most
        # a comparison with NaN is false, so NaN is never within bounds
        return demand(low <= value <= high, f"{value:.4g}")

    return Check(step, f"{what} {' and '.join(bounds)}", look, slow)


def measured(name: str, *arguments: Any) -> Callable[[Any], float]:
    """Make a measure for `reaches`: train a step's program, and return its measurement of this name.

    `arguments` are those of its `train`, the number of steps first; without them it trains for its default.
    """
    return lambda step: float(getattr(step.train(*arguments).measured, name))


def holds(step: int, text: str, look: Callable[[Any], str], *, slow: bool = False) -> Check:
    """Demand that `look` accepts the step's module: it returns its finding, or raises CheckFailed."""
    return Check(step, text, lambda steps: str(steps.call(step, look)), slow)


def demand(is_met: bool, found: str) -> str:
    """Return `found` if a demand is met, and raise CheckFailed with it if not."""
    if not is_met:
        raise CheckFailed(found)
    return found


def demand_equal(expected: Sequence[float], found: Sequence[float], *, relative: float = EQUAL) -> str:
    """Return the largest difference of as many losses if it is small; else raise CheckFailed with it and its step.

    >>> demand_equal([2.0, 1.0], [2.0, 1.0])
    '2 losses, largest relative difference 0.0e+00'
    """
    demand(len(found) == len(expected), f"{len(found)} losses, and {len(expected)} expected")
    worst, at = largest_difference(expected, found)
    text = f"{len(found)} losses, largest relative difference {worst:.1e}"
    return demand(worst <= relative, text if worst <= relative else f"{text} in optimizer step {at + 1}")


def demand_falling(values: Sequence[float]) -> str:
    """Return the first and the last value, and raise CheckFailed with all unless each is below the one before."""
    is_falling = all(after < before for before, after in zip(values, values[1:]))
    demand(is_falling, ", ".join(f"{value:.3f}" for value in values))
    return f"{values[0]:.3f} to {values[-1]:.3f}"


def run_program(*words: str, folder: Optional[Path] = None) -> str:
    """Run Python with these words in a process with one thread, and return its output; CheckFailed if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    demand(done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


EXTRA_OF_MODULE = {
    "sklearn": "recipes",
    "h5py": "recipes",
    "matplotlib": "recipes",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "ignite": "ignite",
    "lightning": "lightning",
}
"""Modules that recipes may import beyond the core's, and the extra of this package that brings each."""


def read_checks(recipe: Recipe, steps: Steps) -> Tuple[Check, ...]:
    """Import `checks.py` of a recipe, set NUM_STEPS of `steps`, and return its CHECKS.

    Raises PortingError: R004 when there are none, they fail, or one is for a step that does not exist, R003 when a step
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
            _refuse_checks(recipe, f"`CHECKS` holds {say_kind(check)} in the place of a check")
        if check.step not in numbers:
            _refuse_checks(recipe, f"a check is for step {check.step}, {present}")
        if check.like is not None and check.like not in numbers:
            _refuse_checks(recipe, f"a check of step {check.step} is like step {check.like}, {present}")
    # a chain of steps is listed at its first one
    return tuple(sorted(checks, key=lambda check: check.step))


def run_check(check: Check, steps: Steps) -> Outcome:
    """Run one check; an error in the step is an outcome as well, with its text.

    The output of a step, with progress bars and notes, becomes part of the outcome if the check fails. Raises
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
    except (Exception, SystemExit) as error:  # a program that ends itself has not done its work
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
