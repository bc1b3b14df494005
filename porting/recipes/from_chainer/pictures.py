"""The pictures of the story: the losses from random weights, and from those of the snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import List

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.from_chainer import step_0_plain, step_2_load, step_4_on_the_device

NUM_STEPS = 60


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 2 and 4 and draw their losses into `folder`; return the files."""
    plain, loaded, ported = (step.train(NUM_STEPS) for step in (step_0_plain, step_2_load, step_4_on_the_device))
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps = range(1, NUM_STEPS + 1)
    axes.plot(steps, plain, color="#8a8f98", linewidth=2, label="step 0: random weights")
    axes.plot(steps, loaded, color="#c98a2b", linewidth=4, label="step 2: the snapshot's weights")
    axes.plot(steps, ported, color="#2463a8", linewidth=1, label="step 4: the same on the device")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = folder / "losses.png"
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return [path]
