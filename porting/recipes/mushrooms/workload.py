"""All steps share this: mushrooms, the perceptron, the results of a training, and the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

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

    def test(self, predict: Callable[[torch.Tensor], Any], test_set: TensorDataset, *, multiple_of: int = 1) -> None:
        """Add a test, of as many mushrooms at once as a multiple of `multiple_of`; padding does not count."""
        features, poisonous = test_set.tensors
        num_missing = -len(features) % multiple_of
        with torch.no_grad():
            logits = predict(torch.cat([features, features[:num_missing]]))[: len(features)]
        loss = nn.functional.binary_cross_entropy_with_logits(logits, poisonous).item()
        self.tests[len(self.steps)] = (loss, accuracy(logits, poisonous))


def make_parts(data: str) -> Tuple[DataLoader, TensorDataset, nn.Module, nn.Module, torch.optim.SGD]:
    """Read the file `data` or make mushrooms; return batches to train with, others to test with, and the parts.

    The parts are the perceptron 22-44-44-1 with the initial weights of Chainer, LeCun's, from the same seed, its loss
    and its optimizer.
    """
    samples = mushrooms.read_mushrooms(data) if data else mushrooms.make_mushrooms(seed=0)
    train_set, test_set = mushrooms.split_at_random(samples, share=0.7, seed=0)
    order = RandomSampler(train_set, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, sampler=order, drop_last=True)
    torch.manual_seed(2)
    model = mlp.build("mushrooms", lecun=True)
    return loader, test_set, model, nn.BCEWithLogitsLoss(), torch.optim.SGD(model.parameters(), lr=0.01)


def accuracy(logits: torch.Tensor, poisonous: torch.Tensor) -> float:
    """Return the share that is on the right side of 0."""
    return ((logits >= 0) == (poisonous == 1)).float().mean().item()


def print_table(history: History) -> None:
    """Print the results next to Chainer's."""
    print("epoch  main/loss         main/accuracy     test/loss         test/accuracy")
    print("         ours  Chainer     ours  Chainer     ours  Chainer     ours  Chainer")
    for epoch, theirs in CHAINER.items():
        steps = history.steps[(epoch - 1) * 56 : epoch * 56]
        ours = [f"{sum(step[index] for step in steps) / len(steps):.4f}" for index in range(2)]
        ours += [f"{value:.4f}" for value in history.tests.get(epoch * 56, ())] or ["-", "-"]
        print(f"{epoch:>5}" + "".join(f"{one:>8}{other:>9.4f} " for one, other in zip(ours, theirs)))


def main(train: Callable[..., Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print the table."""
    data = "mushrooms.csv, the file from UCI; without it mushrooms are made"
    print_table(train(data=read_command_line(description, data=data).data).measured.history)
