"""The pictures of the story: the losses of plain and ported training, and what accumulation changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.first_port import step_0_plain, step_4_device_iterations, step_5_accumulation

NUM_STEPS = 135  # three epochs


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 4 and 5 and draw their losses into `folder`; return the files."""
    plain, ported, accumulated = (
        step.train(NUM_STEPS) for step in (step_0_plain, step_4_device_iterations, step_5_accumulation)
    )
    figure = make_figure()
    left, right = figure.subplots(1, 2, sharey=True)
    line = ("step 0: plain PyTorch", plain, GREY, 3)
    draw_lines(left, line, ("step 4: three steps a call", ported, BLUE, 1), ylabel="loss", yscale="log")
    draw_lines(right, line, ("step 5: four micro-batches of 8", accumulated, BLUE, 1), yscale="log")
    return [save_figure(figure, folder / "losses.png")]
