"""Losses are equal for 50 epochs, and the accuracy is like that in Chainer's manual."""

from __future__ import annotations

from types import ModuleType

from porting.recipe_chain import chain_of_equal_losses, equal_losses, reaches

NUM_STEPS = 3 * 56
ALL_STEPS = 50 * 56
MIN_ACCURACY = 0.965

# the class that joins epochs is most of it
MAX_CHANGED_LINES = {5: 16}


def test_accuracy(step: ModuleType) -> float:
    """Train 50 epochs and return the accuracy of the test after them."""
    _loss, accuracy = step.train(ALL_STEPS).measured.history.tests[ALL_STEPS]
    return float(accuracy)


CHECKS = (
    reaches(0, "test accuracy", at_least=MIN_ACCURACY, measure=test_accuracy),
    *chain_of_equal_losses(1, 4),
    # no loss is above 1: what is equal to 1e-5 of its size is not 1e-5 apart either
    equal_losses(5, like=0, num_steps=ALL_STEPS),
    reaches(5, "test accuracy", at_least=MIN_ACCURACY, measure=test_accuracy),
)
