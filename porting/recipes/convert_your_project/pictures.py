"""Draw the story's picture: the losses of the plain program and of both of its conversions."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.convert_your_project import step_0_plain, step_1_minimal, step_2_idiomatic

NUM_STEPS = 100


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 1 and 2 for five epochs and draw their losses into `folder`; return the file."""
    lines = [
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 5),
        ("step 1: minimal", step_1_minimal.train(NUM_STEPS), BLUE, 2.5),
        ("step 2: idiomatic", step_2_idiomatic.train(NUM_STEPS), "#c8553d", 1),
    ]
    return [draw_losses(folder / "losses.png", lines, ylabel="loss")]
