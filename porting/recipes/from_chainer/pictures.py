"""The pictures of the story: the losses from random weights, and from those of the snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.from_chainer import step_0_plain, step_2_load, step_4_on_the_device

NUM_STEPS = 60


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 2 and 4 and draw their losses into `folder`; return the files."""
    plain, loaded, ported = (step.train(NUM_STEPS) for step in (step_0_plain, step_2_load, step_4_on_the_device))
    figure = make_figure()
    draw_lines(
        figure.subplots(),
        ("step 0: random weights", plain, GREY, 2),
        ("step 2: the snapshot's weights", loaded, "#c98a2b", 4),
        ("step 4: the same on the device", ported, BLUE, 1),
        ylabel="loss",
    )
    return [save_figure(figure, folder / "losses.png")]
