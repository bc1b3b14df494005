"""Draw the story's picture: losses of 50 epochs, of the plain program and of the last step, next to Chainer's."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from porting.recipe_chain.pictures import BLUE, draw_lines, make_figure, save_figure
from porting.recipes.mushrooms import step_0_plain, step_5_hundred_steps_a_call, workload

STEPS_PER_EPOCH = 56
NUM_STEPS = 50 * STEPS_PER_EPOCH


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 5 on mushrooms that are made, and draw the mean losses of their epochs into `folder`."""
    plain, ported = (step.train(NUM_STEPS) for step in (step_0_plain, step_5_hundred_steps_a_call))
    figure = make_figure()
    axes = figure.subplots()
    theirs = {epoch: row[0] for epoch, row in workload.CHAINER.items()}
    axes.plot(list(theirs), list(theirs.values()), "o", color="#d95f02", label="Chainer's manual, real mushrooms")
    draw_lines(
        axes,
        ("step 0: plain PyTorch", _average_epochs(plain), "#9ecae1", 5),
        ("step 5: a hundred steps a call", _average_epochs(ported), BLUE, 1.5),
        xlabel="epoch",
        ylabel="mean loss of the epoch, in training",
        ylim=(0, None),
    )
    return [save_figure(figure, folder / "losses.png")]


def _average_epochs(losses: Sequence[float]) -> List[float]:
    starts = range(0, len(losses), STEPS_PER_EPOCH)
    return [sum(losses[start : start + STEPS_PER_EPOCH]) / STEPS_PER_EPOCH for start in starts]
