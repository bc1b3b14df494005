"""All steps have equal losses and equal logs; epochs get better, and nearly all digits are recognised."""

from __future__ import annotations

from types import ModuleType

from porting.recipe_chain import (
    Check,
    Steps,
    chain_of_equal_losses,
    demand,
    demand_falling,
    equal_losses,
    holds,
    reaches,
)
from porting.recipes.mnist_trainer import workload

NUM_STEPS = 2 * 48
ALL_STEPS = 10 * 48
MIN_ACCURACY = 0.92


def last_accuracy(step: ModuleType) -> float:
    """Train 10 epochs and return the accuracy of the last test."""
    return float(step.train().measured.log[-1][-1])


def epochs_get_better(steps: Steps) -> str:
    """Demand that the mean loss of each epoch is below that of the one before."""
    return demand_falling([row[1] for row in steps.measure(0, lambda step: step.train().measured.log)])


def padding_does_not_count(_step: object) -> str:
    """Demand that the test's loss and accuracy are those of its 1000 digits, whatever fills up the last batch."""
    rows = [(128, 1.0, 0.5)] * 7 + [(104, 2.0, 0.25), (0, float("nan"), float("nan"))]
    found = workload.average_batches(rows)
    demand(all(abs(one - other) <= 1e-9 for one, other in zip(found, (1.104, 0.474))), str(found))
    return "means are over 1000 samples"


CHECKS = (
    Check(0, "mean losses of 10 epochs fall", epochs_get_better),
    *chain_of_equal_losses(1, 3),
    holds(1, "what fills up a batch does not count", padding_does_not_count),
    reaches(4, "test accuracy", at_least=MIN_ACCURACY, measure=last_accuracy),
    equal_losses(4, like=0, num_steps=ALL_STEPS),
)
