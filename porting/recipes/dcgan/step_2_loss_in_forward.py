"""The loss moves into `forward`: one call trains both networks."""

from __future__ import annotations

import porting
from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload


def train(num_steps: int = workload.NUM_STEPS, *, noise: float = workload.NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(num_steps), workload.make_gan(noise)
    optimizer = workload.make_optimizer(gan)
    ported = porting.to_ipu(gan, dcgan.loss, optimizer=optimizer)
    losses = Losses()
    for hidden, images, targets in loader:
        _logits, loss = ported(hidden, images, targets)
        losses.append(loss.item())
    return Losses(losses[:num_steps], made=workload.make_images(gan.generator))


if __name__ == "__main__":
    workload.print_result(train())
