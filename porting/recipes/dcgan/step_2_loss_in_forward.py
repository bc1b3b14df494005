"""The loss moves into `forward`: one call trains both networks."""

from __future__ import annotations

import torch

import porting
from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload
from porting.recipes.dcgan.workload import BETAS, DISCRIMINATOR_RATE, GENERATOR_RATE, NOISE, NUM_STEPS


def train(num_steps: int = NUM_STEPS, *, noise: float = NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(num_steps), workload.make_gan(noise)
    groups = [
        {"params": gan.discriminator.parameters(), "lr": DISCRIMINATOR_RATE},
        {"params": gan.generator.parameters(), "lr": GENERATOR_RATE},
    ]
    optimizer = torch.optim.Adam(groups, betas=BETAS)
    ported = porting.to_ipu(gan, dcgan.loss, optimizer=optimizer)
    losses = Losses()
    for hidden, images, targets in loader:
        _logits, loss = ported(hidden, images, targets)
        losses.append(loss.item())

    hidden = workload.make_samples(4).tensors[0]
    gan.eval()
    with torch.no_grad():
        return Losses(losses[:num_steps], made=gan.generator(hidden))


if __name__ == "__main__":
    workload.print_result(train())
