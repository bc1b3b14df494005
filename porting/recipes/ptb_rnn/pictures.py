"""The picture of the story: the loss of plain and ported training, and the entropy that it cannot fall below."""

from __future__ import annotations

from pathlib import Path
from typing import List

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.ptb_rnn import step_0_plain, step_3_compile_and_test, step_4_accumulation, workload

NUM_STEPS = 300


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 4 and draw their losses into `folder`; return the files."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps = range(1, NUM_STEPS + 1)
    axes.plot(steps, step_0_plain.train(NUM_STEPS), color="#8a8f98", linewidth=4, label="step 0: plain PyTorch")
    axes.plot(steps, step_3_compile_and_test.train(NUM_STEPS), color="#2463a8", linewidth=1, label="step 3: ported")
    accumulated = step_4_accumulation.train(NUM_STEPS)
    axes.plot(steps, accumulated, color="#c8702a", linewidth=1, label="step 4: four micro-batches of five texts")
    entropy = workload.load_text()[2]
    axes.axhline(entropy, color="black", linestyle="--", linewidth=1, label=f"entropy of the text: {entropy:.4f}")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss, nats per token")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = folder / "losses.png"
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return [path]
