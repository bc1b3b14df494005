"""The picture of the story: the losses, and the word vectors as they lie in the plane that spreads them most."""

from __future__ import annotations

from pathlib import Path
from typing import List

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from porting.recipes.skip_gram import step_0_plain, step_3_device_iterations, workload

NUM_STEPS = 200


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 3 and draw losses and vectors into `folder`; return the files."""
    plain, _vectors = step_0_plain.train_and_look(NUM_STEPS)
    ported, vectors = step_3_device_iterations.train_and_look(NUM_STEPS)
    topics = workload.load_text()[2]
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    steps = range(1, NUM_STEPS + 1)
    left.plot(steps, plain, color="#8a8f98", linewidth=4, label="step 0: plain PyTorch")
    left.plot(steps, ported, color="#2463a8", linewidth=1, label="step 3: ten steps a call")
    left.set_xlabel("optimizer step")
    left.set_ylabel("loss, nats per context")
    left.grid(alpha=0.3)
    left.legend(fontsize=8)
    # the two directions in which the vectors of words with a topic differ most
    centred = vectors - vectors[topics >= 0].mean(dim=0)
    plane = torch.linalg.svd(centred[topics >= 0], full_matrices=False)[2][:2]
    x, y = (centred @ plane.T).T.tolist()
    right.scatter(x, y, c=topics.tolist(), cmap="tab10", vmin=-1, vmax=8, s=18)
    right.set_title("word vectors; colours are topics, blue none", fontsize=9)
    right.set_xticks([])
    right.set_yticks([])
    path = folder / "vectors.png"
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    return [path]
