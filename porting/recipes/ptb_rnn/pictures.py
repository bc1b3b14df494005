"""The picture of the story: the loss of plain and ported training, and the entropy that it cannot fall below."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.ptb_rnn import step_0_plain, step_3_compile_and_test, step_4_accumulation, workload

NUM_STEPS = 300


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 4 and draw their losses into `folder`; return the files."""
    figure = make_figure()
    axes = figure.subplots()
    draw_lines(
        axes,
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 3: ported", step_3_compile_and_test.train(NUM_STEPS), BLUE, 1),
        ("step 4: four micro-batches of five texts", step_4_accumulation.train(NUM_STEPS), "#c8702a", 1),
        ylabel="loss, nats per token",
        ylim=(0, None),
    )
    entropy = workload.load_text()[2]
    axes.axhline(entropy, color="black", linestyle="--", linewidth=1, label=f"entropy of the text: {entropy:.4f}")
    axes.legend(fontsize=8)
    return [save_figure(figure, folder / "losses.png")]
