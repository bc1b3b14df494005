"""All steps have equal losses, and their word vectors recover the planted topics."""

from __future__ import annotations

from types import ModuleType

from porting.models import skip_gram
from porting.recipe_chain import chain_of_equal_losses, reaches
from porting.recipes.skip_gram import workload

# the programs train whole epochs: what is computed anyway is compared
NUM_STEPS = 200


def recovery(step: ModuleType) -> float:
    """Train an epoch and return how many of the nearest words have the same topic."""
    return skip_gram.topic_recovery(step.train(1).measured.vectors, workload.load_text()[2])


CHECKS = (
    reaches(0, "share of nearest words with the same topic", at_least=0.95, measure=recovery),
    *chain_of_equal_losses(1, 3),
    reaches(3, "share of nearest words with the same topic", at_least=0.95, measure=recovery),
)
