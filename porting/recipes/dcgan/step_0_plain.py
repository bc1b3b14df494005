"""Discriminator and generator take turns, each with its optimizer, in plain PyTorch."""

from __future__ import annotations

import torch

from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload
from porting.recipes.dcgan.workload import BETAS, DISCRIMINATOR_RATE, GENERATOR_RATE, NOISE, NUM_STEPS


def train(num_steps: int = NUM_STEPS, *, noise: float = NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(num_steps), workload.make_gan(noise)
    discriminator_optimizer = torch.optim.Adam(gan.discriminator.parameters(), DISCRIMINATOR_RATE, BETAS)
    generator_optimizer = torch.optim.Adam(gan.generator.parameters(), GENERATOR_RATE, BETAS)
    losses = Losses()
    for hidden, images, targets in loader:
        made = gan.generator(hidden)
        real, fake = gan.discriminator(images), gan.discriminator(made.detach())
        discriminator_loss = dcgan.discriminator_loss(real, fake, targets)
        discriminator_optimizer.zero_grad()
        discriminator_loss.backward()
        discriminator_optimizer.step()

        generator_loss = dcgan.generator_loss(gan.discriminator(made))
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        losses.append(discriminator_loss.item() + generator_loss.item())
    return Losses(losses[:num_steps], made=workload.make_images(gan.generator))


if __name__ == "__main__":
    workload.print_result(train())
