"""Draw the story's pictures: digits that are drawn, and losses and accuracies of the first and the last step."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.data import digits
from porting.recipe_chain.pictures import BLUE, draw_lines, make_figure, save_figure
from porting.recipes.mnist_loop import step_0_plain, step_5_device_iterations

# ten epochs
NUM_STEPS = 10 * 48


def draw(folder: Path) -> List[Path]:
    """Draw digits, and train steps 0 and 5 and draw how well they learn, into `folder`; return the files."""
    return [_draw_digits(folder / "digits.png"), _draw_losses(folder / "losses.png")]


def _draw_digits(path: Path, *, num_rows: int = 3, num_columns: int = 12) -> Path:
    images, _labels = digits.make_digits(num_rows * num_columns, seed=0)
    sheet = images.view(num_rows, num_columns, 28, 28).permute(0, 2, 1, 3).reshape(num_rows * 28, num_columns * 28)
    figure = make_figure(width=num_columns / 2, height=num_rows / 2, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(sheet.numpy(), cmap="gray_r", interpolation="nearest")
    axes.axis("off")
    return save_figure(figure, path, dpi=60)


def _draw_losses(path: Path) -> Path:
    figure = make_figure()
    left, right = figure.subplots(1, 2)
    looks = (("#9ecae1", 4.0, "step 0: plain PyTorch"), (BLUE, 1.2, "step 5: four steps a call"))
    for step, (color, width, label) in zip((step_0_plain, step_5_device_iterations), looks):
        losses = step.train(NUM_STEPS)
        draw_lines(left, (label, losses, color, width), ylabel="loss")
        line = (label, losses.measured.accuracies, color, width)
        draw_lines(right, line, xlabel="epoch", ylabel="accuracy of the test", ylim=(0, 1))
    return save_figure(figure, path)
