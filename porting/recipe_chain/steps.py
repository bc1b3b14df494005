"""Import the steps of a recipe as a user's script would be, and train each of them once."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple

from porting.recipe_chain.recipe_files import Recipe
from porting.support.host_state import keep_streams, use_threads

__all__ = ["CheckFailed", "Steps"]

DEFAULT_NUM_STEPS = 20


class CheckFailed(Exception):  # noqa: N818 - it is how a check says no, not an error of the program
    """A check does not hold; the text describes the finding."""


class Steps:
    """The steps of `recipe`, for checks: their modules by number, and their losses, which are computed once.

    Steps run with one thread, and leave the number of threads and the random streams as they were. This is a context
    manager for the user's folders, whose modules have bare names and can be imported only inside of it.

    >>> from porting.recipe_chain.recipe_files import find_recipe
    >>> Steps(find_recipe("first_port")).recipe.name
    'first_port'
    """

    def __init__(self, recipe: Recipe, *, num_steps: int = DEFAULT_NUM_STEPS) -> None:
        """Import nothing yet; train `num_steps` optimizer steps unless a check says otherwise."""
        self.recipe = recipe
        self.num_steps = num_steps
        self._losses: Dict[int, List[float]] = {}
        self._trained: Dict[Tuple[Any, ...], Any] = {}
        self._is_on_path = False

    def __enter__(self) -> Steps:
        if self.recipe.package is None and not self._is_on_path:
            for path in self.recipe.folder.glob("*.py"):
                loaded = sys.modules.get(path.stem)
                is_ours = path.stem in ("checks", "pictures", "workload") or path.stem.startswith("step_")
                if loaded is not None and is_ours and not _lies_in(loaded, self.recipe.folder):
                    del sys.modules[path.stem]  # another folder's
            sys.path.insert(0, str(self.recipe.folder))
            importlib.invalidate_caches()
            self._is_on_path = True
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_on_path:
            sys.path.remove(str(self.recipe.folder))
            for name in [name for name, loaded in sys.modules.items() if _lies_in(loaded, self.recipe.folder)]:
                del sys.modules[name]
            self._is_on_path = False

    def load(self, stem: str) -> ModuleType:
        """Import a module of the recipe by its file's name: `step_0_plain`, `checks`, `pictures`."""
        # with one thread, so that sums have one order
        with use_threads(1), keep_streams():
            return importlib.import_module(self.recipe.module_name(stem))

    def module(self, number: int) -> ModuleType:
        """Import a step."""
        return self.load(self.recipe.step(number).path.stem)

    def call(self, number: int, function: Callable[[Any], Any]) -> Any:
        """Call `function` with the module of a step."""
        module = self.module(number)
        # with one thread, so that sums have one order
        with use_threads(1), keep_streams():
            return function(module)

    def losses(self, number: int, num_steps: Optional[int] = None) -> List[float]:
        """Return the losses of the first `num_steps` optimizer steps; train only if no training so far was as long.

        Raises CheckFailed for a step that returns fewer, because losses that do not exist cannot be compared.
        """
        wanted = self.num_steps if num_steps is None else num_steps
        if len(self._losses.get(number, ())) < wanted:
            self._losses[number] = list(self._train_once(number, wanted))
        found = [float(loss) for loss in self._losses[number][:wanted]]
        if len(found) < wanted:
            raise CheckFailed(f"{len(found)} losses of step {number}, and {wanted} were asked for")
        return found

    def measure(self, number: int, function: Callable[[Any], Any]) -> Any:
        """Call `function` with a step that trains once for all trainings with the same arguments.

        A training with no argument but the number of steps gives the losses that `losses` returns.
        """
        remembered = functools.partial(self._train_once, number)
        return self.call(number, lambda step: function(_TrainedOnce(step, remembered)))

    def _train_once(self, number: int, *arguments: Any) -> Any:
        key = (number, *arguments)
        if key not in self._trained:
            trained = self._trained[key] = self.call(number, lambda step: step.train(*arguments))
            # other results of a program are read by its measures alone
            if len(arguments) < 2 and isinstance(trained, list):
                self._losses[number] = max(self._losses.get(number, []), trained, key=len)
        return self._trained[key]


class _TrainedOnce:
    """A step's module whose `train` is replaced: `train_once` runs each repeatable training only once."""

    def __init__(self, module: ModuleType, train_once: Callable[..., Any]) -> None:
        self._module, self._train_once = module, train_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def train(self, *arguments: Any, **settings: Any) -> Any:
        if settings or not all(isinstance(argument, Hashable) for argument in arguments):
            return self._module.train(*arguments, **settings)
        return self._train_once(*arguments)


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).parent == folder
