"""Draw the story's pictures: the losses of four trainings, and the learning rate of each of their steps."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from porting.recipe_chain.pictures import BLUE, GREY, finish_axes, make_figure, save_figure
from porting.recipes.resnet50 import step_0_plain, step_3_inference, step_4_accumulation, step_5_replicas

NUM_STEPS = 288
# step, images of an optimizer step, label, colour, width of the line
TRAININGS = (
    (step_0_plain, 64, "step 0: plain PyTorch", GREY, 3.0),
    (step_3_inference, 64, "step 3: ported", BLUE, 1.0),
    (step_4_accumulation, 64, "step 4: four micro-batches of 16", "#c8553d", 1.0),
    (step_5_replicas, 128, "step 5: two replicas, twice the rate", "#3f8f4f", 1.0),
)


def draw(folder: Path) -> List[Path]:
    """Train four steps for nine epochs, and draw losses and learning rates into `folder`; return the file."""
    figure = make_figure()
    losses, rates = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3, 2)})
    for step, num_images, label, colour, width in TRAININGS:
        trained = step.train(NUM_STEPS * 64 // num_images)
        epochs = [number * num_images / 2048 for number in range(len(trained))]
        losses.plot(epochs, _smooth(trained), color=colour, linewidth=width, label=label)
        rates.plot(epochs, trained.measured.rates, color=colour, linewidth=width)
    finish_axes(losses, ylabel="loss, mean of 8 steps")
    rates.set(yscale="log", ylabel="learning rate", xlabel="epoch")
    rates.grid(alpha=0.3)
    return [save_figure(figure, folder / "losses.png")]


def _smooth(values: Sequence[float]) -> List[float]:
    """Return the mean of each value and up to seven before it."""
    windows = (values[max(0, end - 8) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]
