"""Every step has the losses of the one before, save where BatchNorm sees smaller batches, and recognises digits."""

from __future__ import annotations

from types import ModuleType

from porting.recipe_chain import close_losses, equal_losses, reaches

# two epochs, so that the second one's order and random numbers are compared as well
NUM_STEPS = 90

MAX_CHANGED_LINES = 10


def accuracy(step: ModuleType) -> float:
    """Train for two epochs and return the share of test images recognised."""
    return float(step.train(NUM_STEPS).measured.test_accuracy)


CHECKS = (
    reaches(0, "test accuracy", at_least=0.95, measure=accuracy),
    *(
        check
        for step in (1, 2, 3, 4, 5)
        for check in (
            equal_losses(step, like=step - 1),
            reaches(step, "test accuracy", at_least=0.95, measure=accuracy),
        )
    ),
    # 0.024 in the first epoch when it was written
    close_losses(6, like=5, relative=0.05, num_steps=45, because="BatchNorm normalises micro-batches of 8"),
    reaches(6, "test accuracy", at_least=0.95, measure=accuracy),
)
