"""The pictures of the story: digits that are drawn, and losses and accuracies of the first and the last step."""

from __future__ import annotations

from pathlib import Path
from typing import List

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.data import digits
from porting.recipes.mnist_loop import step_0_plain, step_5_device_iterations

__all__ = ["draw"]


def draw(folder: Path) -> List[Path]:
    """Draw digits, and train steps 0 and 5 and draw how well they learn, into `folder`; return the files."""
    return [_draw_digits(Path(folder) / "digits.png"), _draw_losses(Path(folder) / "losses.png")]


def _draw_digits(path: Path, *, num_rows: int = 3, num_columns: int = 12) -> Path:
    images, _labels = digits.make_digits(num_rows * num_columns, seed=0)
    sheet = images.view(num_rows, num_columns, 28, 28).permute(0, 2, 1, 3).reshape(num_rows * 28, num_columns * 28)
    figure = Figure(figsize=(num_columns / 2, num_rows / 2))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(sheet.numpy(), cmap="gray_r", interpolation="nearest")
    axes.axis("off")
    figure.savefig(path, dpi=60, pil_kwargs={"optimize": True})
    return path


def _draw_losses(path: Path) -> Path:
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    looks = (("#9ecae1", 4.0, "step 0: plain PyTorch"), ("#2463a8", 1.2, "step 5: four steps a call"))
    for step, (color, width, label) in zip((step_0_plain, step_5_device_iterations), looks):
        losses, accuracies = step.train_and_test()
        left.plot(range(1, len(losses) + 1), losses, color=color, linewidth=width, label=label)
        right.plot(range(1, len(accuracies) + 1), accuracies, color=color, linewidth=width, label=label)
    left.set(xlabel="optimizer step", ylabel="loss")
    right.set(xlabel="epoch", ylabel="accuracy of the test", ylim=(0, 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return path
