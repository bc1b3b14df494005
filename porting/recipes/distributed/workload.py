"""All steps share this: the images and their batches, the test, and the command line."""

from __future__ import annotations

import argparse
from itertools import count, islice
from typing import Any, Callable, Iterator, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

from porting.data.digits import make_digits
from porting.models import mlp
from porting.recipe_chain import Losses, predicting


def load_images(num_images: int, *, seed: int) -> TensorDataset:
    """Draw digits, and lay the 28 x 28 pixels of each in a row."""
    images, labels = make_digits(num_images, seed=seed)
    return TensorDataset(images.flatten(start_dim=1), labels)


def make_parts(learning_rate: float) -> Tuple[nn.Module, nn.Module, torch.optim.SGD]:
    """Make the perceptron, always from the same seed, its loss and its optimizer."""
    torch.manual_seed(0)
    model = mlp.build("mnist_small")
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)


def draw_batches(loader: torch.utils.data.DataLoader, order: Any, num_steps: int) -> Iterator[Any]:
    """Yield `num_steps` batches of epoch after epoch, each in an order of its own."""

    def epochs() -> Iterator[Any]:
        for epoch in count():
            order.set_epoch(epoch)
            yield from loader

    return islice(epochs(), num_steps)


def count_recognised(predict: Callable[[torch.Tensor], Any], test_set: TensorDataset) -> int:
    """Count the test images that `predict` gives the largest logit for the right digit."""
    images, labels = test_set.tensors
    with predicting(predict):
        return int((predict(images).argmax(dim=1) == labels).sum())


def main(
    train: Callable[[int], Losses], description: Optional[str], *, num_steps: int = 160, instance: Optional[int] = None
) -> None:
    """Train as the command line says; save and print the results.

    Of several instances each saves in a file that ends in its number, and the first one prints.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=num_steps, help="how many optimizer steps; 5 epochs by default")
    parser.add_argument("--checkpoint", help="file to save losses and weights in; each instance adds its number")
    arguments = parser.parse_args()
    losses = train(arguments.steps)
    measured = losses.measured
    if arguments.checkpoint:
        number = "" if instance is None else f"-{instance}"
        torch.save({"losses": list(losses), **vars(measured)}, f"{arguments.checkpoint}{number}")
    if not instance:
        share = measured.num_recognised / measured.num_tested
        print(f"{losses.fall}, test accuracy {share:.3f} of {measured.num_tested} images")
