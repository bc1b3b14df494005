"""What the steps are checked for: equal losses in all 50 epochs, and an accuracy like that of Chainer's manual."""

from __future__ import annotations

from typing import Any

from porting.recipe_chain import CheckFailed, equal_losses, holds, reaches

NUM_STEPS = 50 * 56
MAX_DIFFERENCE = 1e-5
MIN_ACCURACY = 0.965

# the class that joins epochs has a docstring for each method
MAX_CHANGED_LINES = {5: 16}


def test_accuracy(step: Any) -> float:
    """Train 50 epochs and return the accuracy of the test after them."""
    _loss, accuracy = step.train_and_test(NUM_STEPS).tests[NUM_STEPS]
    return float(accuracy)


def no_loss_is_further(step: Any) -> str:
    """Compare all losses with step 0's, not relative to their size: what the last epochs' small losses are held to."""
    from . import step_0_plain

    pairs = list(zip(step_0_plain.train(NUM_STEPS), step.train(NUM_STEPS)))
    worst = max(abs(one - other) for one, other in pairs)
    if len(pairs) < NUM_STEPS or worst >= MAX_DIFFERENCE:
        raise CheckFailed(f"{len(pairs)} losses, largest difference {worst:.1e}")
    return f"{len(pairs)} losses, largest difference {worst:.1e}"


CHECKS = (
    reaches(0, "test accuracy", at_least=MIN_ACCURACY, measure=test_accuracy),
    equal_losses(1, like=0),
    equal_losses(2, like=1),
    equal_losses(3, like=2),
    equal_losses(4, like=3),
    equal_losses(5, like=4),
    reaches(5, "test accuracy", at_least=MIN_ACCURACY, measure=test_accuracy),
    holds(5, "no loss further than 1e-5 from step 0's", no_loss_is_further),
)
