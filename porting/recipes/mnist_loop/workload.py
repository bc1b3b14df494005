"""All steps share this: digits, the perceptron, its test on the host, and the command line."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import RandomSampler, Sampler, TensorDataset

from porting.data.idx import read_or_make_digits
from porting.models import mlp
from porting.recipe_chain import Losses, read_command_line

BATCH_SIZE = 128


def load_digits(folder: str) -> Tuple[TensorDataset, Sampler[int], TensorDataset]:
    """Draw 6100 digits to train with, in an order, and 1000 to test with; or read MNIST, if its folder is given."""
    train_set, test_set = read_or_make_digits(folder, num_train=6100, num_test=1000, is_flat=True)
    return train_set, RandomSampler(train_set, generator=torch.Generator().manual_seed(0)), test_set


def count_epochs(num_steps: int, train_set: TensorDataset) -> int:
    """Return how many epochs have `num_steps` steps, the last one perhaps more; ten for 0."""
    return -(-num_steps // -(-len(train_set) // BATCH_SIZE)) or 10


def make_parts() -> Tuple[nn.Sequential, nn.Module, torch.optim.SGD]:
    """Make the perceptron 784-100-100-10 with the weights of Chainer, LeCun's, its loss and its optimizer."""
    torch.manual_seed(0)
    model = mlp.build("mnist_small", lecun=True)
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class PaddingLast(Sampler[int]):
    """An order of a dataset's samples, with padding after them: no batch but the last has padding."""

    def __init__(self, order: Sampler[int], padded: Any) -> None:
        self.order, self.padded = order, padded

    def __len__(self) -> int:
        """Count the samples, padding included."""
        return len(self.padded)

    def __iter__(self) -> Iterator[int]:
        """Yield the places of samples, and then those of the padding."""
        yield from self.order
        yield from range(self.padded.num_real, len(self.padded))


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print loss and accuracy of each epoch."""
    losses = train(data=read_command_line(description, data="MNIST's folder; without it digits are drawn").data)
    num_steps = len(losses) // len(losses.measured.accuracies)
    for epoch, accuracy in enumerate(losses.measured.accuracies):
        loss = sum(losses[epoch * num_steps :][:num_steps]) / num_steps
        print(f"epoch {epoch + 1:>2}  loss {loss:.4f}  test accuracy {accuracy:.4f}")
