"""Recipes as data: their files, what each step is checked for, and how checks run.

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
        equal_losses,
        holds,
        reaches,
    )
    from porting.recipe_chain.recipe_files import Recipe, RecipeStep, find_recipe, read_recipes
    from porting.recipe_chain.running import read_checks, run_check
    from porting.recipe_chain.steps import Steps

__all__ = [
    "Check",
    "CheckFailed",
    "Outcome",
    "Recipe",
    "RecipeStep",
    "Steps",
    "close_losses",
    "equal_losses",
    "find_recipe",
    "holds",
    "reaches",
    "read_checks",
    "read_recipes",
    "run_check",
]

_MODULES = {
    "Check": "checks",
    "CheckFailed": "checks",
    "Outcome": "checks",
    "Recipe": "recipe_files",
    "RecipeStep": "recipe_files",
    "Steps": "steps",
    "close_losses": "checks",
    "equal_losses": "checks",
    "find_recipe": "recipe_files",
    "holds": "checks",
    "reaches": "checks",
    "read_checks": "running",
    "read_recipes": "recipe_files",
    "run_check": "running",
}


def __getattr__(name: str) -> Any:
    """Load a name's module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'porting.recipe_chain' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"porting.recipe_chain.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
