"""Recipes as data: their files, what each step is checked for, how checks run, and what their programs share.

The names are loaded on first use (PEP 562): to list and show recipes needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from porting.recipe_chain.checks import (
        Check,
        CheckFailed,
        Outcome,
        close_losses,
        demand,
        equal_losses,
        holds,
        reaches,
        run_program,
    )
    from porting.recipe_chain.programs import Losses, draw_batches, measure_accuracy, predicting, read_command_line
    from porting.recipe_chain.recipe_files import Recipe, RecipeStep, find_recipe, read_recipes
    from porting.recipe_chain.running import read_checks, run_check
    from porting.recipe_chain.steps import Steps

__all__ = [
    "Check",
    "CheckFailed",
    "Losses",
    "Outcome",
    "Recipe",
    "RecipeStep",
    "Steps",
    "close_losses",
    "demand",
    "draw_batches",
    "equal_losses",
    "find_recipe",
    "holds",
    "measure_accuracy",
    "predicting",
    "reaches",
    "read_checks",
    "read_command_line",
    "read_recipes",
    "run_check",
    "run_program",
]

# the first needs no torch
_MODULES = ("recipe_files", "programs", "checks", "steps", "running")


def __getattr__(name: str) -> Any:
    """Load a name's module on first use."""
    for module in _MODULES if name in __all__ else ():
        loaded = importlib.import_module(f"porting.recipe_chain.{module}")
        if name in loaded.__all__:
            value = globals()[name] = getattr(loaded, name)
            return value
    raise AttributeError(f"module 'porting.recipe_chain' has no attribute {name!r}")
