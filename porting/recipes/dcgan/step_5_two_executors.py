"""The networks take turns again, each on an executor of its own: this is the other way."""

from __future__ import annotations

import torch
from torch import nn

import porting
from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload
from porting.recipes.dcgan.workload import BETAS, DISCRIMINATOR_RATE, GENERATOR_RATE, NOISE, NUM_STEPS


class DiscriminatorHalf(nn.Module):
    """The discriminator's training step: the generator only makes images."""

    def __init__(self, gan: dcgan.DCGAN) -> None:
        super().__init__()
        self.gan = gan

    def forward(self, hidden: torch.Tensor, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the discriminator's loss."""
        made = self.gan.generator(hidden).detach()
        return dcgan.discriminator_loss(self.gan.discriminator(images), self.gan.discriminator(made), targets)


class GeneratorHalf(nn.Module):
    """The generator's training step: the discriminator is held constant."""

    def __init__(self, gan: dcgan.DCGAN) -> None:
        super().__init__()
        self.gan = gan

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the generator's loss."""
        return dcgan.generator_loss(self.gan.discriminator.hold(self.gan.generator(hidden)))


def train(num_steps: int = NUM_STEPS, *, noise: float = NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(num_steps), workload.make_gan(noise)
    discriminator_optimizer = torch.optim.Adam(gan.discriminator.parameters(), DISCRIMINATOR_RATE, BETAS)
    generator_optimizer = torch.optim.Adam(gan.generator.parameters(), GENERATOR_RATE, BETAS)
    seeds = [porting.PortOptions(seed=seed) for seed in (1, 2)]
    discriminate = porting.to_ipu(DiscriminatorHalf(gan), optimizer=discriminator_optimizer, options=seeds[0])
    deceive = porting.to_ipu(GeneratorHalf(gan), optimizer=generator_optimizer, options=seeds[1])
    generate = porting.to_ipu(gan.generator).inference()
    losses = Losses()
    for hidden, images, targets in discriminate.dataloader(loader):
        discriminator_loss = discriminate(hidden, images, targets)
        losses.append(discriminator_loss.item() + deceive(hidden).item())
    return Losses(losses[:num_steps], made=workload.make_images(generate))


if __name__ == "__main__":
    workload.print_result(train())
