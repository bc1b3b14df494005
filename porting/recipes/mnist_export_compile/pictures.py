"""The pictures of the story: the losses of plain and ported training, and what computation orders keep in memory."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.mnist_export_compile import step_0_plain, step_4_processes

NUM_STEPS = 130


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 4 and draw their losses into `folder`; return the files."""
    plain, ported = step_0_plain.train(NUM_STEPS), step_4_processes.train(NUM_STEPS)
    figure = make_figure()
    draw_lines(
        figure.subplots(),
        ("step 0: plain PyTorch, the last batch of 50", plain, GREY, 4),
        ("step 4: ported, the last batch padded to 100", ported, BLUE, 1),
        ylabel="loss",
    )
    return [save_figure(figure, folder / "losses.png")]
