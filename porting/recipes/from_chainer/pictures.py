"""Draw the story's pictures: the losses from random weights, and from those of the snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.from_chainer import step_0_plain, step_2_load, step_4_on_the_device

NUM_STEPS = 60


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 2 and 4 and draw their losses into `folder`; return the files."""
    lines = [
        ("step 0: random weights", step_0_plain.train(NUM_STEPS), GREY, 2),
        ("step 2: the snapshot's weights", step_2_load.train(NUM_STEPS), "#c98a2b", 4),
        ("step 4: the same on the device", step_4_on_the_device.train(NUM_STEPS), BLUE, 1),
    ]
    return [draw_losses(folder / "losses.png", lines, ylabel="loss")]
