"""The pictures of the story: lengths and what padding them costs, and the losses of plain and ported training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import List

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.data.buckets import choose_buckets
from porting.recipes.seq2seq import step_0_plain, step_2_a_port_for_each, step_4_translate_on_the_device, workload

NUM_STEPS = 400


def draw(folder: Path) -> List[Path]:
    """Draw lengths and losses into `folder`; return the files."""
    return [_draw_lengths(folder / "lengths.png"), _draw_losses(folder / "losses.png")]


def _draw_lengths(path: Path) -> Path:
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    lengths = workload.lengths_of(workload.load_pairs()[0])
    counts = Counter(lengths)
    left.bar(list(counts), list(counts.values()), color="#2463a8")
    for length in choose_buckets(lengths, 2).lengths:
        left.axvline(length + 0.5, color="#c8702a", linestyle="--")
    left.set_xlabel("places that a pair needs; dashed: the two buckets")
    left.set_ylabel("pairs")
    numbers = (1, 2, 3, 4)
    shares = [choose_buckets(lengths, number).report(lengths).padding_share for number in numbers]
    right.bar([str(number) for number in numbers], shares, color="#8a8f98")
    for number, share in enumerate(shares):
        right.text(number, share, f"{share:.0%}", ha="center", va="bottom", fontsize=9)
    right.set_xlabel("buckets")
    right.set_ylabel("share of padding")
    right.set_ylim(0, 0.6)
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return path


def _draw_losses(path: Path) -> Path:
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps = range(1, NUM_STEPS + 1)
    axes.plot(steps, step_0_plain.train(NUM_STEPS), color="#8a8f98", linewidth=4, label="step 0: plain PyTorch")
    ported = step_2_a_port_for_each.train(NUM_STEPS)
    axes.plot(steps, ported, color="#2463a8", linewidth=1, label="step 2: a port for each length")
    in_runs = step_4_translate_on_the_device.train(NUM_STEPS)
    axes.plot(steps, in_runs, color="#c8702a", linewidth=1, label="step 4: four batches of a length in a row")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss, nats per token")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=70, pil_kwargs={"optimize": True})
    return path
