"""Losses that must be equal are equal, and made pictures become like real ones."""

from __future__ import annotations

from types import ModuleType

from porting.recipe_chain import chain_of_equal_losses, close_losses, demand_equal, holds, reaches
from porting.recipes.dcgan import step_0_plain, workload

NUM_STEPS = 16
MAX_DISTANCE = 0.33

# two optimizers become one; one executor becomes two
MAX_CHANGED_LINES = {1: 16, 5: 31}


def distance(step: ModuleType) -> float:
    """Train for 104 steps and return how far 64 images are from real ones; before training it is 0.45."""
    return workload.measure_distance(step.train(104).measured.made)


def equal_without_noise(step: ModuleType) -> str:
    """Demand the losses of step 0 where no noise is drawn: each executor draws its own."""
    return demand_equal(*(module.train(NUM_STEPS, noise=0.0) for module in (step_0_plain, step)))


CHECKS = (
    reaches(0, "distance from real pictures", at_most=MAX_DISTANCE, measure=distance),
    close_losses(1, like=0, relative=0.05, because="the generator meets the discriminator before its step"),
    reaches(4, "distance from real pictures", at_most=MAX_DISTANCE, measure=distance),
    *chain_of_equal_losses(2, 4),
    holds(5, "losses equal step 0's, noise aside", equal_without_noise),
)
