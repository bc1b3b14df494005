"""All steps have equal losses; epochs get better, and nearly all digits are recognised."""

from __future__ import annotations

from types import ModuleType

from porting.recipe_chain import Check, Steps, chain_of_equal_losses, demand_falling, equal_losses, reaches

NUM_STEPS = 2 * 48
ALL_STEPS = 10 * 48
MIN_ACCURACY = 0.92


def last_accuracy(step: ModuleType) -> float:
    """Train 10 epochs and return the accuracy of the last test."""
    return float(step.train().measured.accuracies[-1])


def epochs_get_better(steps: Steps) -> str:
    """Demand that the mean loss of each epoch is below that of the one before."""
    losses = steps.losses(0, ALL_STEPS)
    return demand_falling([sum(losses[start : start + 48]) / 48 for start in range(0, ALL_STEPS, 48)])


CHECKS = (
    reaches(0, "test accuracy", at_least=MIN_ACCURACY, measure=last_accuracy),
    Check(0, "mean losses of 10 epochs fall", epochs_get_better),
    *chain_of_equal_losses(1, 4),
    reaches(5, "test accuracy", at_least=MIN_ACCURACY, measure=last_accuracy),
    equal_losses(5, like=0, num_steps=ALL_STEPS),
)
