"""Draw the story's pictures: the losses of plain and ported training, and what accumulation changes."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.first_port import step_0_plain, step_5_device_iterations, step_6_accumulation

NUM_STEPS = 135


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 5 and 6 for three epochs and draw their losses into `folder`; return the files."""
    plain = ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 3)
    ported = ("step 5: three steps a call", step_5_device_iterations.train(NUM_STEPS), BLUE, 1)
    accumulated = ("step 6: four micro-batches of 8", step_6_accumulation.train(NUM_STEPS), BLUE, 1)
    return [draw_losses(folder / "losses.png", [plain, ported], [plain, accumulated], ylabel="loss", yscale="log")]
