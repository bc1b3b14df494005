"""Plain PyTorch: discriminator and generator take turns, each with its optimizer."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data import images as pictures
from porting.models import dcgan

BATCH_SIZE = 16
NUM_STEPS = 304
NOISE = 0.2
SIZES = {"channels": 32, "hidden": 32}
BETAS = (0.5, 0.999)
# with equal ones the discriminator wins for every other seed
DISCRIMINATOR_RATE, GENERATOR_RATE = 4e-4, 1e-3


def make_samples(num_steps: int) -> TensorDataset:
    """Make hidden numbers, pictures of blobs and checkerboards, and targets, enough to see no picture twice."""
    num_samples = num_steps * BATCH_SIZE
    config = dcgan.DCGANConfig(hidden=SIZES["hidden"])
    hidden = dcgan.make_hidden(config, num_samples, generator=torch.Generator().manual_seed(0))
    return TensorDataset(hidden, pictures.make_unlabelled_images(num_samples, seed=0), torch.ones(num_samples))


def looks(images: torch.Tensor) -> torch.Tensor:
    """Return brightness, contrast and roughness of images: three columns, each sorted."""
    rough = (images[..., 1:] - images[..., :-1]).abs()
    columns = [images.mean(dim=(1, 2, 3)), images.std(dim=(1, 2, 3)), rough.mean(dim=(1, 2, 3))]
    return torch.stack(columns, dim=1).sort(dim=0).values


def distance_from_real(made: torch.Tensor) -> float:
    """Return how far the looks of images are from those of real ones: the sum of the three mean differences."""
    real = pictures.make_unlabelled_images(len(made), seed=1)
    return (looks(made) - looks(real)).abs().mean(dim=0).sum().item()


def train(num_steps: int) -> List[float]:
    """Return the losses of the first `num_steps` steps, each the sum of discriminator's and generator's."""
    return train_and_make(num_steps)[0][:num_steps]


def train_and_make(num_steps: int = NUM_STEPS, *, noise: float = NOISE) -> Tuple[List[float], torch.Tensor]:
    """Train as `train` does; return its losses, and 64 images that are made afterwards."""
    torch.manual_seed(0)
    loader = DataLoader(make_samples(num_steps), batch_size=BATCH_SIZE)
    gan = dcgan.build("small", noise=noise, **SIZES)
    discriminator_optimizer = torch.optim.Adam(gan.discriminator.parameters(), DISCRIMINATOR_RATE, BETAS)
    generator_optimizer = torch.optim.Adam(gan.generator.parameters(), GENERATOR_RATE, BETAS)
    losses: List[float] = []
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

    hidden = make_samples(4).tensors[0]
    gan.eval()
    with torch.no_grad():
        return losses, gan.generator(hidden)


if __name__ == "__main__":
    losses, made = train_and_make()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, distance from real pictures {distance_from_real(made):.3f}")
