"""The pictures of the story: the losses of plain, ported and half-precision training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.fine_tune_bert import step_0_plain, step_3_inference, step_5_half_precision

NUM_STEPS = 240


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 5 and draw their losses into `folder`; return the files."""
    plain, ported, halves = (step.train(NUM_STEPS) for step in (step_0_plain, step_3_inference, step_5_half_precision))
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_losses(left, plain, ported, "step 3: ported")
    _draw_losses(right, plain, halves, "step 5: accumulation, half precision")
    left.set_ylabel("loss")
    path = folder / "losses.png"
    figure.savefig(path, dpi=64, pil_kwargs={"optimize": True})
    return [path]


def _draw_losses(axes: Any, plain: Sequence[float], ported: Sequence[float], title: str) -> None:
    steps = range(1, len(plain) + 1)
    axes.plot(steps, plain, color="#8a8f98", linewidth=3, label="step 0: plain PyTorch")
    axes.plot(steps, ported, color="#2463a8", linewidth=1, label=title)
    axes.set_xlabel("optimizer step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
