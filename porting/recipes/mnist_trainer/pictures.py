"""Draw the story's picture: the log of the first and of the last step."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, finish_axes, make_figure, save_figure
from porting.recipes.mnist_trainer import step_0_plain, step_4_device_iterations

# ten epochs
NUM_STEPS = 10 * 48


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 4 and draw their logs into `folder`; return the file."""
    figure = make_figure()
    panels = figure.subplots(1, 2)
    looks = (("step 0", 4.0, 0.35), ("step 4", 1.2, 1.0))
    for step, (name, width, alpha) in zip((step_0_plain, step_4_device_iterations), looks):
        epochs, *columns = zip(*step.train(NUM_STEPS).measured.log)
        for index, (title, color) in enumerate((("main", BLUE), ("test", "#d95f02")) * 2):
            axes = panels[index // 2]
            axes.plot(epochs, columns[index], color=color, linewidth=width, alpha=alpha, label=f"{title}, {name}")
    for axes, quantity in zip(panels, ("loss", "accuracy")):
        finish_axes(axes, xlabel="epoch", ylabel=quantity, ylim=(0, None))
    return [save_figure(figure, folder / "log.png")]
