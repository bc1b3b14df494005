"""Help the programs of recipes: the losses that `train` returns, batches of several epochs, and a command line."""

from __future__ import annotations

import argparse
import random
from contextlib import contextmanager
from itertools import chain, islice, repeat
from types import SimpleNamespace
from typing import Any, Callable, Iterable, Iterator, List, Optional

import numpy
import torch
from torch import nn
from torch.utils.data import TensorDataset

__all__ = ["Losses", "draw_batches", "measure_accuracy", "predicting", "read_command_line", "seed_everything"]


class Losses(List[float]):
    """The losses of a training, one for each optimizer step; `measured` has other results, by name.

    Printed, they show how far the loss has fallen (`fall`), and the measured fractions.

    >>> losses = Losses([2.3026, 0.5], test_accuracy=0.9)
    >>> print(losses)
    loss 2.3026 -> 0.5000, test accuracy 0.900
    >>> losses.measured.test_accuracy, list(losses)
    (0.9, [2.3026, 0.5])
    """

    def __init__(self, losses: Iterable[float] = (), **measured: Any) -> None:
        super().__init__(losses)
        self.measured = SimpleNamespace(**measured)

    def __str__(self) -> str:
        fractions = {name: value for name, value in vars(self.measured).items() if isinstance(value, float)}
        return self.fall + "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in fractions.items())

    @property
    def fall(self) -> str:
        """The first loss and the last one."""
        return f"loss {self[0]:.4f} -> {self[-1]:.4f}"


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, from which models and data are drawn.

    >>> seed_everything(0)
    >>> random.random()
    0.8444218515250481
    """
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def draw_batches(loader: Iterable[Any], num_steps: int) -> Iterator[Any]:
    """Yield `num_steps` batches, from one epoch after the other.

    >>> list(draw_batches("ab", 5))
    ['a', 'b', 'a', 'b', 'a']
    """
    return islice(chain.from_iterable(repeat(loader)), num_steps)


def measure_accuracy(predict: Callable[[torch.Tensor], Any], test_set: TensorDataset) -> float:
    """Return the share of samples for which `predict` gives the largest logit to the right class.

    A module predicts in eval mode, and returns to its earlier mode.
    """
    inputs, labels = test_set.tensors
    with predicting(predict):
        return (predict(inputs).argmax(dim=1) == labels).float().mean().item()


@contextmanager
def predicting(predict: Callable[..., Any]) -> Iterator[None]:
    """Compute no gradients; a module is in eval mode meanwhile."""
    was_training = getattr(predict, "training", False)
    if isinstance(predict, nn.Module):
        predict.eval()
    with torch.no_grad():
        yield
    if isinstance(predict, nn.Module):
        predict.train(was_training)


def read_command_line(description: Optional[str], *, data: str, steps: Optional[int] = None) -> argparse.Namespace:
    """Read `--data`, whose help is `data`, and the number of `--steps` to train, if `steps` gives a default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", default="", help=data)
    if steps is not None:
        parser.add_argument("--steps", type=int, default=steps, help="how many optimizer steps to train")
    return parser.parse_args()
