"""Draw the story's pictures: losses, the memory of each IPU, and when each IPU of a pipeline is busy."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses, draw_memory, make_figure, save_figure
from porting.recipes.gpt_pipeline import step_0_plain, step_4_four_ipus, step_8_half_precision, workload

NUM_STEPS = 120
FORWARD, BACKWARD, BOTH = BLUE, "#c8553d", "#7a4f9e"
_PARTS = (
    ("weights and buffers", ("weight_bytes", "buffer_bytes"), BLUE),
    ("accumulators, optimizer", ("accumulator_bytes", "optimizer_bytes"), "#6fa8dc"),
    ("waits for backward", ("kept_bytes",), "#c8553d"),
    ("computed again", ("recomputed_bytes",), "#e8a598"),
    ("temporaries, in and out", ("temporary_bytes", "input_bytes"), "#b9a44c"),
    ("code", ("code_bytes",), GREY),
)


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 4 and 8, look at the memory of GPT-2, draw it all into `folder` and return the files."""
    pipeline = {"accumulation": 16, "stages": workload.GPT2_STAGES}
    reports = {
        "one IPU": workload.look_at_gpt2(),
        "4 IPUs": workload.look_at_gpt2(**pipeline),
        "4 IPUs, blocks kept": workload.look_at_gpt2(**pipeline, recompute=workload.GPT2_BLOCKS),
    }
    lines = [
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 4: five stages on four IPUs", step_4_four_ipus.train(NUM_STEPS), BLUE, 1.5),
        ("step 8: float16", step_8_half_precision.train(NUM_STEPS), "#c8553d", 0.8),
    ]
    entropy = workload.load_text()[2]
    return [
        draw_losses(folder / "losses.png", lines, least=entropy, ylabel="loss (nats per word)", ylim=(0.5, None)),
        draw_memory(folder / "memory.png", reports, _PARTS),
        _draw_schedule(folder / "schedule.png"),
    ]


def _draw_schedule(path: Path) -> Path:
    """Draw which micro-batch each stage works on, for the three stages of step 3 and an accumulation of 10."""
    figure = make_figure()
    axes = figure.subplots()
    rows = [("blocks 0, 1 (IPU 0)", FORWARD), ("blocks 2, 3 (IPU 1)", FORWARD), ("head (IPU 0)", BOTH)]
    rows += [("blocks 2, 3 (IPU 1)", BACKWARD), ("blocks 0, 1 (IPU 0)", BACKWARD)]
    for row, (_label, colour) in enumerate(rows):
        for micro_batch in range(10):
            axes.barh(row, 0.94, left=row + micro_batch, color=colour, height=0.86)
            axes.text(row + micro_batch + 0.47, row, str(micro_batch), color="white", ha="center", va="center")
    fill, end = len(rows) - 1, len(rows) - 1 + 10
    for place in (fill, end - fill):
        axes.axvline(place, color="black", linestyle=":", linewidth=1)
    for middle, text in ((fill / 2, "fill"), (end / 2, "all stages work"), (end - fill / 2, "drain, then update")):
        axes.text(middle, -0.75, text, ha="center", fontsize=9)
    for colour, text in ((FORWARD, "forward"), (BOTH, "forward and backward"), (BACKWARD, "backward")):
        axes.barh(0, 0, color=colour, label=text)
    axes.set_yticks(range(len(rows)), [label for label, _colour in rows])
    axes.set(xlabel="time", ylim=(len(rows) - 0.4, -1.1), xlim=(0, end))
    axes.legend(fontsize=8, loc="lower left")
    return save_figure(figure, path)
