"""All steps share this: pictures, the two networks and their rates, and how far made pictures are from real ones."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.utils.data import DataLoader, TensorDataset

from porting.data import images as pictures
from porting.models import dcgan
from porting.recipe_chain import Losses, predicting

BATCH_SIZE = 16
NUM_STEPS = 304
NOISE = 0.2
SIZES = {"channels": 32, "hidden": 32}
BETAS = (0.5, 0.999)
# with equal ones the discriminator wins for every other seed
DISCRIMINATOR_RATE, GENERATOR_RATE = 4e-4, 1e-3


def make_samples(num_steps: int) -> TensorDataset:
    """Make hidden numbers, pictures of blobs and checkerboards, and targets, so many that no picture is used twice."""
    num_samples = num_steps * BATCH_SIZE
    config = dcgan.DCGANConfig(hidden=SIZES["hidden"])
    hidden = dcgan.make_hidden(config, num_samples, generator=torch.Generator().manual_seed(0))
    return TensorDataset(hidden, pictures.make_unlabelled_images(num_samples, seed=0), torch.ones(num_samples))


def make_loader(num_steps: int) -> DataLoader:
    """Make the loader of the samples, in their order."""
    return DataLoader(make_samples(num_steps), batch_size=BATCH_SIZE)


def make_gan(noise: float) -> dcgan.DCGAN:
    """Make generator and discriminator, always from the same seed."""
    torch.manual_seed(0)
    return dcgan.build("small", noise=noise, **SIZES)


def make_optimizer(gan: dcgan.DCGAN) -> torch.optim.Adam:
    """Make one optimizer of both networks: a group of parameters for each, with its learning rate."""
    rates = {gan.discriminator: DISCRIMINATOR_RATE, gan.generator: GENERATOR_RATE}
    groups = [{"params": network.parameters(), "lr": rate} for network, rate in rates.items()]
    return torch.optim.Adam(groups, betas=BETAS)


def make_images(generate: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """Make 64 images from hidden numbers."""
    with predicting(generate):
        return generate(make_samples(4).tensors[0])


def measure_distance(made: torch.Tensor) -> float:
    """Return how far the brightness, contrast and roughness of images are from those of real ones: the sum of all."""
    looks = []
    for images in (made, pictures.make_unlabelled_images(len(made), seed=1)):
        rough = (images[..., 1:] - images[..., :-1]).abs()
        columns = [images.mean(dim=(1, 2, 3)), images.std(dim=(1, 2, 3)), rough.mean(dim=(1, 2, 3))]
        looks.append(torch.stack(columns, dim=1).sort(dim=0).values)
    return (looks[0] - looks[1]).abs().mean(dim=0).sum().item()


def print_result(losses: Losses) -> None:
    """Print the losses, and how far made pictures are from real ones."""
    print(f"{losses.fall}, distance from real pictures {measure_distance(losses.measured.made):.3f}")
