"""Every step has the losses of the one before; digits are recognised, and the device gives probabilities."""

from __future__ import annotations

import contextlib
import io
import re
from types import ModuleType

from porting.recipe_chain import chain_of_equal_losses, demand, holds, reaches
from porting.recipes.lenet5 import workload

# two epochs, so that the second one's order is compared as well
NUM_STEPS = 100


def accuracy(step: ModuleType) -> float:
    """Train for six epochs and return the share of test images recognised."""
    return workload.accuracy(step.train(300))


def gives_probabilities(step: ModuleType) -> str:
    """Check that the classes' numbers of each test image add up to 1."""
    probabilities = step.train(1).measured.probabilities
    error = float((probabilities.sum(dim=1) - 1).abs().max())
    is_met = error <= 1e-5 and float(probabilities.min()) >= 0
    demand(is_met, f"the numbers of an image add up to 1 up to {error:.1e} only")
    return f"{len(probabilities)} images, sums are 1 up to {error:.0e}"


def validation_loss_falls(step: ModuleType) -> str:
    """Read the validation losses that the step prints, and check that the last is far below the first."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        step.train(300)
    losses = [float(number) for number in re.findall(r"validation loss is ([\d.]+)", printed.getvalue())]
    demand(len(losses) == 6 and losses[-1] < 0.25 < 2 < losses[0], f"validation losses {losses}")
    return f"{losses[0]:.2f} -> {losses[-1]:.2f}"


CHECKS = (
    reaches(0, "test accuracy", at_least=0.95, measure=accuracy),
    reaches(3, "test accuracy", at_least=0.95, measure=accuracy),
    *chain_of_equal_losses(1, 4),
    holds(3, "inference gives probabilities", gives_probabilities),
    holds(4, "the validation loss falls from 2.3 to less than 0.25", validation_loss_falls),
)
