"""Draw the story's pictures: losses of plain and ported training, an event, and the memory that an IPU would need."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

import porting
from porting.data.display import draw_event
from porting.recipe_chain.pictures import BLUE, GREY, draw_losses, draw_memory
from porting.recipes.cosmictagger import step_0_plain, step_6_memory_look, step_7_warm_up, workload

NUM_STEPS = 160
PARTS = (
    ("weights, gradients, optimizer", ("weight_bytes", "buffer_bytes", "accumulator_bytes", "optimizer_bytes"), GREY),
    ("kept for the backward pass", ("kept_bytes", "recomputed_bytes"), BLUE),
    ("the rest", ("temporary_bytes", "input_bytes", "code_bytes"), "#d9a441"),
)
FOUR_STAGES = {"core.below": 1, "core.grow": 2, "final": 3}
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "2 events": {"micro_batch": 2},
    "1 event": {},
    "half": {"precision": "mixed"},
    "2 IPUs": {"precision": "mixed", "accumulation": 4, "stages": {"core.grow": 1}},
    "4 IPUs": {"precision": "mixed", "accumulation": 8, "stages": FOUR_STAGES},
}


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 7 and look at the memory of the A21 network; draw into `folder` and return the files."""
    plain, ported = step_0_plain.train(NUM_STEPS), step_7_warm_up.train(NUM_STEPS)
    lines = [
        ("step 0: plain PyTorch, batches of 4", plain, GREY, 2),
        ("step 7: ported, batch size 1, four to a step", ported, BLUE, 1),
    ]
    images, labels = workload.load_events(workload.Settings())[1][0]
    predicted = ported.measured.model.inference()(images.unsqueeze(0)).argmax(2)[0]
    reports = {
        name: workload.look_at_memory((*step_6_memory_look.a21()[:-1], porting.PortOptions(**changes)))
        for name, changes in CONFIGURATIONS.items()
    }
    return [
        draw_losses(folder / "losses.png", lines, ylabel="focal loss, sum of three planes"),
        draw_event(folder / "event.png", images, labels, predicted, title="an event that was not trained with"),
        draw_memory(folder / "memory.png", reports, PARTS),
    ]
