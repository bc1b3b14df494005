"""Two IPUs hold the model: there is a stage for each half of the blocks, and one for the head."""

from __future__ import annotations

import porting
from porting.models import gpt
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.gpt_pipeline.workload import make_parts, measure_loss, print_result

STAGES = {"blocks.2": 1, "head": 0}
OPTIONS = porting.PortOptions(micro_batch=4, accumulation=10, output_mode="all", stages=STAGES)


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the mean loss on the text to test with."""
    loader, test_set, model, optimizer = make_parts()
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=OPTIONS, returns=["loss"])
    losses = Losses()
    for tokens, labels in draw_batches(loader, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())
    return Losses(losses, test_loss=measure_loss(model, test_set))


if __name__ == "__main__":
    print_result(train(num_steps=300))
