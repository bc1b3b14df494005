"""Draw the story's pictures: lengths and what padding them costs, and the losses of plain and ported training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import List

from porting.buckets import choose_buckets
from porting.recipe_chain.pictures import BLUE, GREY, draw_losses, make_figure, save_figure
from porting.recipes.seq2seq import (
    step_0_plain,
    step_2_an_executable_for_each,
    step_4_translate_on_the_device,
    workload,
)

NUM_STEPS = 400


def draw(folder: Path) -> List[Path]:
    """Draw lengths and losses into `folder`; return the files."""
    lines = [
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 2: an executable for each length", step_2_an_executable_for_each.train(NUM_STEPS), BLUE, 1),
        ("step 4: four batches of a length in a row", step_4_translate_on_the_device.train(NUM_STEPS), "#c8702a", 1),
    ]
    losses = draw_losses(folder / "losses.png", lines, height=3.5, dpi=70, ylabel="loss, nats per token")
    return [_draw_lengths(folder / "lengths.png"), losses]


def _draw_lengths(path: Path) -> Path:
    figure = make_figure(height=3.5)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    lengths = workload.measure_lengths(workload.load_pairs()[0])
    counts = Counter(lengths)
    left.bar(list(counts), list(counts.values()), color=BLUE)
    for length in choose_buckets(lengths, 2).lengths:
        left.axvline(length + 0.5, color="#c8702a", linestyle="--")
    left.set(xlabel="places that a pair needs; dashed: the two buckets", ylabel="pairs")
    numbers = (1, 2, 3, 4)
    shares = [choose_buckets(lengths, number).report(lengths).padding_share for number in numbers]
    right.bar([str(number) for number in numbers], shares, color=GREY)
    for number, share in enumerate(shares):
        right.text(number, share, f"{share:.0%}", ha="center", va="bottom", fontsize=9)
    right.set(xlabel="buckets", ylabel="share of padding", ylim=(0, 0.6))
    return save_figure(figure, path)
