"""The pictures of the story: the losses with the plateau of the sigmoids, and answers with their probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import List

import torch

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.lenet5 import step_0_plain, step_3_probabilities, workload

NUM_STEPS = 300
NUM_DIGITS = 8


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 3, and draw their losses and some answers into `folder`; return the files."""
    plain, _probabilities, _labels = step_0_plain.train_and_test(NUM_STEPS)
    ported, probabilities, labels = step_3_probabilities.train_and_test(NUM_STEPS)
    _train_set, test_set = workload.load_digits(None)
    return [
        _draw_losses(folder / "losses.png", plain, ported),
        _draw_answers(folder / "answers.png", test_set.tensors[0], probabilities, labels),
    ]


def _draw_losses(path: Path, plain: List[float], ported: List[float]) -> Path:
    figure = make_figure(height=3.5)
    axes = figure.subplots()
    axes.annotate("sigmoids take their time", (75, 2.25), (30, 1.3), arrowprops={"arrowstyle": "->"}, fontsize=9)
    lines = ("step 0: plain PyTorch", plain, GREY, 3), ("step 3: ported", ported, BLUE, 1)
    draw_lines(axes, *lines, ylabel="loss")
    return save_figure(figure, path)


def _draw_answers(path: Path, images: torch.Tensor, probabilities: torch.Tensor, labels: torch.Tensor) -> Path:
    """Draw the digits of which the network is the least sure, each above the probabilities of all classes."""
    figure = make_figure(height=3)
    rows = probabilities.max(dim=1).values.argsort()[:NUM_DIGITS]
    for column, row in enumerate(rows.tolist()):
        digit, bars = (
            figure.add_subplot(2, NUM_DIGITS, column + 1),
            figure.add_subplot(2, NUM_DIGITS, NUM_DIGITS + column + 1),
        )
        digit.imshow(images[row, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
        digit.set_title(f"a {int(labels[row])}", fontsize=9)
        digit.axis("off")
        colours = [BLUE if label == int(labels[row]) else "#c0c4cc" for label in range(10)]
        bars.bar(range(10), probabilities[row].tolist(), color=colours)
        bars.set_ylim(0, 1)
        bars.set_xticks(range(10), [str(label) for label in range(10)], fontsize=6)
        bars.set_yticks([0, 1] if column == 0 else [], ["0", "1"] if column == 0 else [], fontsize=7)
    return save_figure(figure, path)
