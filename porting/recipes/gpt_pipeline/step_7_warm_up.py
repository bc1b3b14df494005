"""The step is compiled before the loop, and not inside its first call: this is the warm-up."""

from __future__ import annotations

import porting
from porting.models import gpt
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.gpt_pipeline import workload
from porting.recipes.gpt_pipeline.workload import make_model, make_parts, measure_loss, print_result

STAGES = {"blocks.1": 1, "blocks.2": 2, "blocks.3": 3, "head": 0}
KEPT = [f"blocks.{number}" for number in range(4)]
OPTIONS = porting.PortOptions(micro_batch=4, accumulation=10, output_mode="all", stages=STAGES, recompute=KEPT)


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the mean loss on the text to test with."""
    loader, test_set, model, optimizer = make_parts()
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=OPTIONS, returns=["loss"])
    ported.compile(*test_set[: OPTIONS.samples_per_call])
    losses = Losses()
    for tokens, labels in draw_batches(loader, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())
    return Losses(losses, test_loss=measure_loss(model, test_set))


if __name__ == "__main__":
    print(workload.look(make_model(), OPTIONS), workload.look_at_gpt2(), sep="\n\n", end="\n\n")
    print_result(train(num_steps=300))
