"""The pictures of the story: the losses of plain and ported training, and what computation orders keep in memory."""

from __future__ import annotations

from pathlib import Path
from typing import List

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.mnist_export_compile import step_0_plain, step_4_processes

NUM_STEPS = 130


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 4 and draw their losses into `folder`; return the files."""
    plain, ported = step_0_plain.train(NUM_STEPS), step_4_processes.train(NUM_STEPS)
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps = range(1, NUM_STEPS + 1)
    axes.plot(steps, plain, color="#8a8f98", linewidth=4, label="step 0: plain PyTorch, the last batch of 50")
    axes.plot(steps, ported, color="#2463a8", linewidth=1, label="step 4: ported, the last batch padded to 100")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = folder / "losses.png"
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return [path]
