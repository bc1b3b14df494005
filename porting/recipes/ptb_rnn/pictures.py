"""Draw the story's picture: the loss of plain and ported training, and the entropy that it cannot fall below."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.ptb_rnn import step_0_plain, step_3_compile_and_test, step_4_accumulation, workload

NUM_STEPS = 300


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 4 and draw their losses into `folder`; return the files."""
    lines = [
        ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 4),
        ("step 3: ported", step_3_compile_and_test.train(NUM_STEPS), BLUE, 1),
        ("step 4: four micro-batches of five texts", step_4_accumulation.train(NUM_STEPS), "#c8702a", 1),
    ]
    entropy = workload.load_text()[2]
    path = folder / "losses.png"
    return [draw_losses(path, lines, least=entropy, ylabel="loss, nats per token", ylim=(0, None))]
