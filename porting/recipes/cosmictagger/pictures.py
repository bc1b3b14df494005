"""The pictures of the story: losses of plain and ported training, an event, and what an IPU would have to hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

import porting
from porting.data.display import draw_event
from porting.recipe_chain.pictures import BLUE, GREY, draw_losses, make_figure, save_figure
from porting.recipes.cosmictagger import step_0_plain, step_6_memory_look, step_7_warm_up, workload

NUM_STEPS = 160
PARTS = {
    "weights, gradients, optimizer": ("weight_bytes", "buffer_bytes", "accumulator_bytes", "optimizer_bytes"),
    "kept for the backward pass": ("kept_bytes", "recomputed_bytes"),
    "the rest": ("temporary_bytes", "input_bytes", "code_bytes"),
}
COLOURS = (GREY, BLUE, "#d9a441")
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
    return [
        draw_losses(folder / "losses.png", lines, ylabel="focal loss, sum of three planes"),
        draw_event(folder / "event.png", images, labels, predicted, title="an event that was not trained with"),
        _draw_memory(folder / "memory.png"),
    ]


def _draw_memory(path: Path) -> Path:
    figure = make_figure()
    axes = figure.subplots()
    bars: List[Any] = []
    for name, changes in CONFIGURATIONS.items():
        memory = workload.look_at_memory((*step_6_memory_look.a21()[:-1], porting.PortOptions(**changes)))
        bars += [(name if len(memory.ipus) == 1 else f"{name}:\nIPU {ipu.ipu}", ipu) for ipu in memory.ipus]
    bottoms = [0.0] * len(bars)
    for (label, names), colour in zip(PARTS.items(), COLOURS):
        heights = [sum(ipu.parts[name] for name in names) / 1e6 for _name, ipu in bars]
        axes.bar(range(len(bars)), heights, bottom=bottoms, color=colour, label=label)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]
    axes.axhline(memory.target.memory_bytes / 1e6, color="#b0352b", label="memory of an IPU")
    axes.set_xticks(range(len(bars)), [name for name, _ipu in bars], fontsize=7)
    axes.set_ylabel("MB, estimated")
    axes.legend(fontsize=8)
    return save_figure(figure, path)
