"""Draw the story's picture: the losses, and the word vectors in the plane that spreads them most."""

from __future__ import annotations

from pathlib import Path
from typing import List

import torch

from porting.recipe_chain.pictures import BLUE, GREY, draw_lines, make_figure, save_figure
from porting.recipes.skip_gram import step_0_plain, step_3_device_iterations, workload

NUM_STEPS = 200


def draw(folder: Path) -> List[Path]:
    """Train steps 0 and 3 and draw losses and vectors into `folder`; return the files."""
    plain, ported = step_0_plain.train(NUM_STEPS), step_3_device_iterations.train(NUM_STEPS)
    vectors = ported.measured.vectors
    topics = workload.load_text()[2]
    figure = make_figure()
    left, right = figure.subplots(1, 2)
    lines = ("step 0: plain PyTorch", plain, GREY, 4), ("step 3: ten steps a call", ported, BLUE, 1)
    draw_lines(left, *lines, ylabel="loss, nats per context")
    # the two directions in which the vectors of words with a topic differ most
    centred = vectors - vectors[topics >= 0].mean(dim=0)
    plane = torch.linalg.svd(centred[topics >= 0], full_matrices=False)[2][:2]
    x, y = (centred @ plane.T).T.tolist()
    right.scatter(x, y, c=topics.tolist(), cmap="tab10", vmin=-1, vmax=8, s=18)
    right.set_title("word vectors; colours are topics, blue none", fontsize=9)
    right.set_xticks([])
    right.set_yticks([])
    return [save_figure(figure, folder / "vectors.png")]
