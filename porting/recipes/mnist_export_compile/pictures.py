"""Draw the story's pictures: the losses of plain and ported training, and what computation orders keep in memory."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.mnist_export_compile import step_0_plain, step_4_processes

NUM_STEPS = 130


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 4 and draw their losses into `folder`; return the files."""
    lines = [
        ("step 0: plain PyTorch, the last batch of 50", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 4: ported, the last batch padded to 100", step_4_processes.train(NUM_STEPS), BLUE, 1),
    ]
    return [draw_losses(folder / "losses.png", lines, ylabel="loss")]
