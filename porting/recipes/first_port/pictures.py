"""The pictures of the story: the losses of plain and ported training, and what accumulation changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import List

from porting.recipe_chain.pictures import BLUE, GREY, draw_losses
from porting.recipes.first_port import step_0_plain, step_4_device_iterations, step_5_accumulation


def draw(folder: Path) -> List[Path]:
    """Train steps 0, 4 and 5 for three epochs and draw their losses into `folder`; return the files."""
    plain = ("step 0: plain PyTorch", step_0_plain.train(135), GREY, 3)
    ported = ("step 4: three steps a call", step_4_device_iterations.train(135), BLUE, 1)
    accumulated = ("step 5: four micro-batches of 8", step_5_accumulation.train(135), BLUE, 1)
    return [draw_losses(folder / "losses.png", [plain, ported], [plain, accumulated], ylabel="loss", yscale="log")]
