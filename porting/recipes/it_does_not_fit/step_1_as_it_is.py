"""The port trains as it is, and the plan of the large model says that it does not fit."""

from __future__ import annotations

import porting
from porting.models import gpt
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.it_does_not_fit import workload
from porting.recipes.it_does_not_fit.workload import make_parts, measure_loss, print_result


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the mean loss on the text to test with."""
    loader, test_set, model, optimizer = make_parts()
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, returns=["loss"])
    losses = Losses()
    for tokens, labels in draw_batches(loader, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.item())
    return Losses(losses, test_loss=measure_loss(model, test_set))


if __name__ == "__main__":
    print(workload.plan_large(ipus=1, micro_batch=4))
    print_result(train(num_steps=100))
