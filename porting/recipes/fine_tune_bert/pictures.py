"""The pictures of the story: the losses of plain, ported and half-precision training."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.fine_tune_bert import step_0_plain, step_3_inference, step_5_half_precision

NUM_STEPS = 240


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 5 and draw their losses into `folder`; return the files."""
    plain, ported, halves = (step.train(NUM_STEPS) for step in (step_0_plain, step_3_inference, step_5_half_precision))
    figure = make_figure()
    left, right = figure.subplots(1, 2, sharey=True)
    line = ("step 0: plain PyTorch", plain, GREY, 3)
    draw_lines(left, line, ("step 3: ported", ported, BLUE, 1), ylabel="loss")
    draw_lines(right, line, ("step 5: accumulation, half precision", halves, BLUE, 1))
    return [save_figure(figure, folder / "losses.png", dpi=64)]
