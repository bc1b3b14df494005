"""The losses of all steps are equal until accumulation, which changes Dropout's portions, and the text is learnt."""

from __future__ import annotations

import importlib
from types import ModuleType
from unittest import mock

from porting.recipe_chain import chain_of_equal_losses, close_losses, demand_equal, holds, measured, reaches
from porting.recipes.ptb_rnn import workload

# beyond the first epoch, so that a new learning rate and a new first state are compared as well
NUM_STEPS = 60


def accumulation_alone_changes_nothing(step: ModuleType) -> str:
    """Compare with step 3, both without Dropout."""
    other = importlib.import_module(step.__name__.replace("step_4_accumulation", "step_3_compile_and_test"))
    with mock.patch.object(workload, "DROPOUT", 0.0):
        return demand_equal(other.train(10), step.train(10))


# the source's entropy is 0.7245 nats, without context the loss is 2.0
CHECKS = (
    reaches(0, "mean test loss", at_least=0.71, at_most=1.0, measure=measured("test_loss", 200)),
    reaches(3, "mean test loss", at_least=0.71, at_most=1.0, measure=measured("test_loss", 200), slow=True),
    *chain_of_equal_losses(1, 3),
    reaches(4, "mean test loss", at_least=0.71, at_most=1.0, measure=measured("test_loss", 200), slow=True),
    close_losses(4, like=3, relative=0.2, num_steps=20, because="Dropout draws for five texts at a time"),
    holds(4, "losses equal step 3's without Dropout", accumulation_alone_changes_nothing),
)
