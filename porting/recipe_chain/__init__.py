"""Handle recipes as data: find their files, check their steps, and offer what their programs share.

The names are loaded on first use (PEP 562): to list and show recipes needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.recipe_chain.checks import Check as Check
    from porting.recipe_chain.checks import Outcome as Outcome
    from porting.recipe_chain.checks import chain_of_equal_losses as chain_of_equal_losses
    from porting.recipe_chain.checks import close_losses as close_losses
    from porting.recipe_chain.checks import demand as demand
    from porting.recipe_chain.checks import demand_equal as demand_equal
    from porting.recipe_chain.checks import demand_falling as demand_falling
    from porting.recipe_chain.checks import equal_losses as equal_losses
    from porting.recipe_chain.checks import holds as holds
    from porting.recipe_chain.checks import measured as measured
    from porting.recipe_chain.checks import reaches as reaches
    from porting.recipe_chain.checks import read_checks as read_checks
    from porting.recipe_chain.checks import repeats as repeats
    from porting.recipe_chain.checks import run_check as run_check
    from porting.recipe_chain.checks import run_program as run_program
    from porting.recipe_chain.programs import Losses as Losses
    from porting.recipe_chain.programs import draw_batches as draw_batches
    from porting.recipe_chain.programs import measure_accuracy as measure_accuracy
    from porting.recipe_chain.programs import predicting as predicting
    from porting.recipe_chain.programs import read_command_line as read_command_line
    from porting.recipe_chain.programs import seed_everything as seed_everything
    from porting.recipe_chain.recipe_files import Recipe as Recipe
    from porting.recipe_chain.recipe_files import RecipeStep as RecipeStep
    from porting.recipe_chain.recipe_files import find_recipe as find_recipe
    from porting.recipe_chain.recipe_files import read_recipes as read_recipes
    from porting.recipe_chain.steps import CheckFailed as CheckFailed
    from porting.recipe_chain.steps import Steps as Steps

__all__, __getattr__, __dir__ = read_late_names(globals())
