"""One optimizer steps both networks at once."""

from __future__ import annotations

from porting.models import dcgan
from porting.recipe_chain import Losses
from porting.recipes.dcgan import workload


def train(num_steps: int = workload.NUM_STEPS, *, noise: float = workload.NOISE) -> Losses:
    """Return each step's sum of discriminator's and generator's loss, and 64 images that are made afterwards."""
    loader, gan = workload.make_loader(num_steps), workload.make_gan(noise)
    optimizer = workload.make_optimizer(gan)
    losses = Losses()
    for hidden, images, targets in loader:
        loss = dcgan.loss(gan(hidden, images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses[:num_steps], made=workload.make_images(gan.generator))


if __name__ == "__main__":
    workload.print_result(train())
