"""Draw the story's pictures: the memory of the large model on the way to four IPUs, and the losses of the small one."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses, draw_memory
from porting.recipes.it_does_not_fit import step_0_plain, step_3_split, workload

NUM_STEPS = 100
_PARTS = (
    ("weights and buffers", ("weight_bytes", "buffer_bytes"), BLUE),
    ("accumulators, optimizer", ("accumulator_bytes", "optimizer_bytes"), "#6fa8dc"),
    ("waits for backward", ("kept_bytes",), "#c8553d"),
    ("computed again", ("recomputed_bytes",), "#e8a598"),
    ("temporaries, in and out", ("temporary_bytes", "input_bytes"), "#b9a44c"),
    ("code, exchange, gaps", ("code_bytes", "exchange_bytes", "imbalance_bytes"), GREY),
)


def draw(folder: Path) -> List[Path]:
    """Plan the large model, train steps 0 and 3, draw it all into `folder` and return the files."""
    ladder = {**workload.LADDER, "accumulation": 40}
    plans = {
        "as it is": workload.plan_large(ipus=1, micro_batch=4),
        "ladder": workload.plan_large(ipus=1, **ladder),
        "ladder, 4 IPUs": workload.plan_large(ipus=4, **ladder),
    }
    lines = [
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 3: the plan's stages", step_3_split.train(NUM_STEPS), BLUE, 1.5),
    ]
    entropy = workload.load_text()[2]
    return [
        draw_memory(folder / "memory.png", plans, _PARTS),
        draw_losses(folder / "losses.png", lines, least=entropy, ylabel="loss (nats per word)", ylim=(0.5, None)),
    ]
