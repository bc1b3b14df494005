"""Draw the story's picture: the losses of the plain loop, and of each library."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.trainers import (
    step_0_plain,
    step_1_accelerate,
    step_2_ignite,
    step_3_lightning,
    step_4_transformers,
    workload,
)

NUM_STEPS = workload.NUM_STEPS

_LIBRARIES = {
    "accelerate": step_1_accelerate,
    "Ignite": step_2_ignite,
    "Lightning": step_3_lightning,
    "transformers": step_4_transformers,
}


def draw(folder: Path) -> List[Path]:
    """Train all steps and draw their losses into `folder`; return the file."""
    plain = ("plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 3)
    panels = [[plain, (name, step.train(NUM_STEPS), BLUE, 1)] for name, step in _LIBRARIES.items()]
    return [draw_losses(folder / "losses.png", *panels, dpi=50, ylabel="loss")]
