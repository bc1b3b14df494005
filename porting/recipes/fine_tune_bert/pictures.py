"""Draw the story's pictures: the losses of plain, ported and half-precision training."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.fine_tune_bert import step_0_plain, step_3_inference, step_5_half_precision

NUM_STEPS = 240


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 3 and 5 and draw their losses into `folder`; return the files."""
    plain = ("step 0: plain PyTorch", step_0_plain.train(NUM_STEPS), GREY, 3)
    ported = ("step 3: ported", step_3_inference.train(NUM_STEPS), BLUE, 1)
    halves = ("step 5: accumulation, half precision", step_5_half_precision.train(NUM_STEPS), BLUE, 1)
    return [draw_losses(folder / "losses.png", [plain, ported], [plain, halves], dpi=64, ylabel="loss")]
