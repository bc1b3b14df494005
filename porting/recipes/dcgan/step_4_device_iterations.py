"""One call trains eight steps."""

from __future__ import annotations

import porting
from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload


def train(num_steps: int = workload.NUM_STEPS, *, noise: float = workload.NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(-(-num_steps // 8) * 8), workload.make_gan(noise)
    optimizer = workload.make_optimizer(gan)
    options = porting.PortOptions(micro_batch=workload.BATCH_SIZE, device_iterations=8, output_mode="all")
    ported = porting.to_ipu(gan, dcgan.loss, optimizer=optimizer, options=options)
    ported.compile(*workload.make_samples(8).tensors)
    generate = porting.to_ipu(gan.generator).inference()
    losses = Losses()
    for hidden, images, targets in ported.dataloader(loader):
        _logits, loss = ported(hidden, images, targets)
        losses.extend(loss.tolist())
    return Losses(losses[:num_steps], made=workload.make_images(generate))


if __name__ == "__main__":
    workload.print_result(train())
