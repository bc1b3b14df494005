"""The forecast says how fast the large model trains on a Pod16, and how many replicas pay."""

from __future__ import annotations

import porting
from porting.models import gpt
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.it_does_not_fit import workload
from porting.recipes.it_does_not_fit.workload import make_parts, measure_loss, print_result

OPTIONS = porting.PortOptions(
    micro_batch=4, accumulation=10, output_mode="all", recompute=workload.LARGE_BLOCKS[:4], optimizer_state="off_chip"
)
# of `workload.plan_model(workload.make_model(), OPTIONS, ipus=4)`; the machine with IPUs has no torch that plans
STAGES = {"blocks.1": 1, "blocks.2": 2, "blocks.3": 3, "head": 0}


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the mean loss on the text to test with."""
    loader, test_set, model, optimizer = make_parts()
    options = OPTIONS.replace(stages=STAGES)
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=options, returns=["loss"])
    losses = Losses()
    for tokens, labels in draw_batches(loader, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())
    return Losses(losses, test_loss=measure_loss(model, test_set))


if __name__ == "__main__":
    planned = workload.plan_large(ipus=4, accumulation=256, **workload.LADDER)
    print(planned, f"{planned.forecast.count_hours(1e7):.0f} hours for ten million texts", sep="\n")
    print_result(train(num_steps=100))
