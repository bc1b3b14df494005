"""Every step has the losses of the one before, over two changes of the learning rate, and learns the patterns."""

from __future__ import annotations

from porting.recipe_chain import chain_of_equal_losses, measured, reaches

# five epochs: the schedule halves the learning rate twice
NUM_STEPS = 100

# the converted programs are as the tool writes them
MAX_CHANGED_LINES = 30

CHECKS = (
    *chain_of_equal_losses(1, 3),
    *(reaches(step, "accuracy", at_least=0.9, measure=measured("accuracy", NUM_STEPS)) for step in range(4)),
)
