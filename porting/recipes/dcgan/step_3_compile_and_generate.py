"""The device's loader makes the batches, compiling gets its own moment, and images are made on the device."""

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
    ported.compile(*workload.make_samples(1).tensors)
    generate = porting.to_ipu(gan.generator).inference()
    losses = Losses()
    for hidden, images, targets in ported.dataloader(loader):
        _logits, loss = ported(hidden, images, targets)
        losses.append(loss.item())
    return Losses(losses[:num_steps], made=workload.make_images(generate))


if __name__ == "__main__":
    workload.print_result(train())
