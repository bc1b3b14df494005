"""Draw the story's pictures: losses of one process and of two replicas, and what a larger batch changes."""

from __future__ import annotations

from pathlib import Path
from typing import List
from unittest import mock

from matplotlib.axes import Axes

from porting.recipe_chain.pictures import BLUE, GREY, finish_axes, make_figure, save_figure
from porting.recipes.distributed import step_0_plain, step_4_masked_test, step_5_larger_batch

IMAGES_PER_EPOCH = 2048
NUM_STEPS = 160


def draw(folder: Path) -> List[Path]:
    """Train four times for five epochs and draw the losses into `folder`; return the file."""
    figure = make_figure()
    left, right = figure.subplots(1, 2, sharey=True)
    plain, replicas = step_0_plain.train(NUM_STEPS), step_4_masked_test.train(NUM_STEPS)
    _draw_losses(left, plain, 64, "step 0: plain PyTorch, 64 images", GREY, 3.0)
    _draw_losses(left, replicas, 64, "step 4: two replicas of 32", BLUE, 1.0)
    with mock.patch.object(step_5_larger_batch, "LEARNING_RATE", 0.05 / 4):
        unscaled = step_5_larger_batch.train(NUM_STEPS // 4)
    _draw_losses(right, plain, 64, "64 images, rate 0.05", GREY, 1.0)
    _draw_losses(right, unscaled, 256, "256 images, rate 0.05", "#c8553d", 1.5)
    _draw_losses(right, step_5_larger_batch.train(NUM_STEPS // 4), 256, "step 5: 256 images, rate 0.2", "#3f8f4f", 1.5)
    left.set_ylabel("loss")
    return [save_figure(figure, folder / "losses.png")]


def _draw_losses(axes: Axes, losses: List[float], num_images: int, label: str, colour: str, width: float) -> None:
    epochs = [number * num_images / IMAGES_PER_EPOCH for number in range(len(losses))]
    axes.plot(epochs, losses, color=colour, linewidth=width, label=label)
    finish_axes(axes, xlabel="epoch")
