"""Draw the story's pictures: the losses with the plateau of the sigmoids, and answers with their probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain import Losses
from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.lenet5 import step_0_plain, step_3_probabilities, workload

NUM_STEPS, NUM_DIGITS = 300, 8


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 3, and draw their losses and some answers into `folder`; return the files."""
    plain, ported = step_0_plain.train(NUM_STEPS), step_3_probabilities.train(NUM_STEPS)
    figure = make_figure(height=3.5)
    axes = figure.subplots()
    axes.annotate("sigmoids take their time", (75, 2.25), (30, 1.3), arrowprops={"arrowstyle": "->"}, fontsize=9)
    lines = ("step 0: plain PyTorch", plain, GREY, 3), ("step 3: ported", ported, BLUE, 1)
    draw_lines(axes, *lines, ylabel="loss", ylim=(0, None))
    return [save_figure(figure, folder / "losses.png"), _draw_answers(folder / "answers.png", ported)]


def _draw_answers(path: Path, losses: Losses) -> Path:
    """Draw the digits of which the network is the least sure, each above the probabilities of all classes."""
    figure = make_figure(height=3)
    probabilities, labels = losses.measured.probabilities, losses.measured.labels
    images = workload.make_parts("")[0].tensors[0]
    rows = probabilities.max(dim=1).values.argsort()[:NUM_DIGITS]
    for column, row in enumerate(rows.tolist()):
        digit, bars = (figure.add_subplot(2, NUM_DIGITS, row * NUM_DIGITS + column + 1) for row in (0, 1))
        digit.imshow(images[row, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
        digit.set_title(f"a {int(labels[row])}", fontsize=9)
        digit.axis("off")
        colours = [BLUE if label == int(labels[row]) else "#c0c4cc" for label in range(10)]
        bars.bar(range(10), probabilities[row].tolist(), color=colours)
        bars.set_ylim(0, 1)
        bars.set_xticks(range(10), [str(label) for label in range(10)], fontsize=6)
        bars.set_yticks([0, 1] if column == 0 else [], ["0", "1"] if column == 0 else [], fontsize=7)
    return save_figure(figure, path)
