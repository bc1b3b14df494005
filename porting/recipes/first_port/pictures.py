"""The pictures of the story: the losses of plain and ported training, and what accumulation changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.first_port import step_0_plain, step_4_device_iterations, step_5_accumulation

NUM_STEPS = 135  # three epochs


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 4 and 5 and draw their losses into `folder`; return the files."""
    plain, ported, accumulated = (
        step.train(NUM_STEPS) for step in (step_0_plain, step_4_device_iterations, step_5_accumulation)
    )
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_losses(left, plain, ported, "step 4: three steps a call")
    _draw_losses(right, plain, accumulated, "step 5: four micro-batches of 8")
    left.set_ylabel("loss")
    path = folder / "losses.png"
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return [path]


def _draw_losses(axes: Any, plain: Sequence[float], ported: Sequence[float], title: str) -> None:
    steps = range(1, len(plain) + 1)
    axes.plot(steps, plain, color="#8a8f98", linewidth=3, label="step 0: plain PyTorch")
    axes.plot(steps, ported, color="#2463a8", linewidth=1, label=title)
    axes.set_yscale("log")
    axes.set_xlabel("optimizer step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
