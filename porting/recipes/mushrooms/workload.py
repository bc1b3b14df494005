"""Shared by all steps: mushrooms, the perceptron, what a training leaves behind, and the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import RandomSampler, Sampler, TensorDataset

from porting.data import mushrooms
from porting.models import mlp
from porting.recipe_chain import Losses, read_command_line

BATCH_SIZE = 100
# what Chainer's manual prints after these epochs: loss and accuracy in training, loss and accuracy of the test
CHAINER = {
    1: (0.550724, 0.733509, 0.502818, 0.752821),
    10: (0.241789, 0.927193, 0.251821, 0.917937),
    25: (0.138782, 0.958947, 0.148277, 0.954147),
    50: (0.0622394, 0.982321, 0.0710278, 0.981747),
}


@dataclass
class History:
    """Loss and accuracy of each optimizer step; those of the tests, by the number of steps that were made before."""

    steps: List[Tuple[float, float]] = field(default_factory=list)
    tests: Dict[int, Tuple[float, float]] = field(default_factory=dict)


def load_mushrooms(data: Optional[str]) -> Tuple[TensorDataset, Sampler[int], TensorDataset]:
    """Read the file `data` or make mushrooms; return those to train with, an order of them, and those to test with."""
    samples = mushrooms.read_mushrooms(data) if data else mushrooms.make_mushrooms(seed=0)
    train_set, test_set = mushrooms.split_at_random(samples, share=0.7, seed=0)
    return train_set, RandomSampler(train_set, generator=torch.Generator().manual_seed(0)), test_set


def make_model() -> nn.Sequential:
    """Make the perceptron 22-44-44-1 with the initial weights of Chainer, LeCun's, always from the same seed."""
    torch.manual_seed(2)
    return mlp.build("mushrooms", lecun=True)


def accuracy(logits: torch.Tensor, poisonous: torch.Tensor) -> float:
    """Return the share that is on the right side of 0."""
    return ((logits >= 0) == (poisonous == 1)).float().mean().item()


def print_table(history: History) -> None:
    """Print ours next to Chainer's."""
    print("epoch  main/loss         main/accuracy     test/loss         test/accuracy")
    print("         ours  Chainer     ours  Chainer     ours  Chainer     ours  Chainer")
    for epoch, theirs in CHAINER.items():
        steps = history.steps[(epoch - 1) * 56 : epoch * 56]
        ours = [f"{sum(step[index] for step in steps) / len(steps):.4f}" for index in range(2)]
        ours += [f"{value:.4f}" for value in history.tests.get(epoch * 56, ())] or ["-", "-"]
        print(f"{epoch:>5}" + "".join(f"{one:>8}{other:>9.4f} " for one, other in zip(ours, theirs)))


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train on what the command line says, and print the table."""
    data = "mushrooms.csv, the file from UCI; without it mushrooms are made"
    print_table(train(data=read_command_line(description, data=data).data).measured.history)
