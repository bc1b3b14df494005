"""Draw the story's pictures: losses of both ways, and what the generator makes next to real pictures."""

from __future__ import annotations

from pathlib import Path
from typing import List

import torch

from porting.data import images as real_pictures
from porting.recipe_chain.pictures import BLUE, draw_losses, make_figure, save_figure
from porting.recipes.dcgan import step_0_plain, step_4_device_iterations, workload

NUM_STEPS = workload.NUM_STEPS


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 4, and draw losses and images into `folder`; return the files."""
    turns, at_once = step_0_plain.train(NUM_STEPS), step_4_device_iterations.train(NUM_STEPS)
    lines = [
        ("step 0: taking turns", turns, "#d95f02", 0.8),
        ("step 4: both at once, eight steps a call", at_once, BLUE, 0.8),
    ]
    ylabel = "discriminator's and generator's loss"
    return [
        draw_losses(folder / "losses.png", lines, dpi=64, ylabel=ylabel, ylim=(0, None)),
        _draw_images(folder / "images.png", at_once.measured.made),
    ]


def _draw_images(path: Path, made: torch.Tensor, *, num_rows: int = 2, num_columns: int = 8) -> Path:
    figure = make_figure(width=5, height=2.9)
    count = num_rows * num_columns
    rows = (("real", real_pictures.make_unlabelled_images(count, seed=1)), ("made", made[:count]))
    for axes, (title, images) in zip(figure.subplots(2, 1), rows):
        grid = images.view(num_rows, num_columns, 3, 32, 32).permute(0, 3, 1, 4, 2)
        axes.imshow(grid.reshape(num_rows * 32, num_columns * 32, 3).numpy())
        axes.set_title(title, fontsize=8, loc="left")
        axes.axis("off")
    return save_figure(figure, path, dpi=50)
