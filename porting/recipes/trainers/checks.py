"""All libraries train with equal losses, and the digits are recognised."""

from __future__ import annotations

from porting.recipe_chain import equal_losses, reaches

NUM_STEPS = 45
MAX_CHANGED_LINES = {2: 25, 3: 35, 4: 45}
MIN_ACCURACY = 0.85

CHECKS = (
    reaches(0, "test accuracy", at_least=MIN_ACCURACY, measure=lambda step: step.train(100).measured.test_accuracy),
    equal_losses(1, like=0),
    equal_losses(2, like=0),
    equal_losses(3, like=0),
    equal_losses(4, like=0),
)
