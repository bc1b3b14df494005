"""One call trains an epoch: 56 steps, one after the other, on the device."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

import porting
from porting.data import mushrooms
from porting.models import mlp

BATCH_SIZE = 100
NUM_EPOCHS = 50

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


def make_model() -> nn.Sequential:
    """Make the perceptron 22-44-44-1 with Chainer's initial weights, LeCun's: variance 1 / inputs, no bias."""
    model = mlp.build("mushrooms")
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)
    return model


def accuracy(logits: torch.Tensor, poisonous: torch.Tensor) -> float:
    """Return the share that is on the right side of 0."""
    return ((logits >= 0) == (poisonous == 1)).float().mean().item()


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return [loss for loss, _accuracy in train_and_test(num_steps).steps[:num_steps]]


def train_and_test(num_steps: int = NUM_EPOCHS * 56, data: Optional[str] = None) -> History:
    """Train as `train` does, on the file `data` or on mushrooms that are made, and test after each epoch."""
    torch.manual_seed(2)
    samples = mushrooms.read_mushrooms(data) if data else mushrooms.make_mushrooms(seed=0)
    train_set, test_set = mushrooms.split_at_random(samples, share=0.7, seed=0)
    order = RandomSampler(train_set, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, sampler=order, drop_last=True)
    model, criterion = make_model(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = porting.PortOptions(micro_batch=BATCH_SIZE, device_iterations=56, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(loader)
    ported.compile(torch.zeros(options.samples_per_call, 22), torch.zeros(options.samples_per_call, 1))
    infer = ported.inference()
    history = History()
    while len(history.steps) < num_steps:
        for features, poisonous in loader:
            logits, loss = ported(features, poisonous)
            micro_batches = zip(logits.split(BATCH_SIZE), poisonous.split(BATCH_SIZE))
            history.steps.extend(zip(loss.tolist(), (accuracy(*micro_batch) for micro_batch in micro_batches)))
        features, poisonous = test_set.tensors
        num_missing = -len(features) % options.device_iterations
        logits = infer(torch.cat([features, features[:num_missing]]))[: len(features)]
        history.tests[len(history.steps)] = (criterion(logits, poisonous).item(), accuracy(logits, poisonous))
    return history


def print_table(history: History) -> None:
    """Print ours next to Chainer's."""
    print("epoch  main/loss         main/accuracy     test/loss         test/accuracy")
    print("         ours  Chainer     ours  Chainer     ours  Chainer     ours  Chainer")
    for epoch, theirs in CHAINER.items():
        steps = history.steps[(epoch - 1) * 56 : epoch * 56]
        ours = [f"{sum(step[index] for step in steps) / len(steps):.4f}" for index in range(2)]
        ours += [f"{value:.4f}" for value in history.tests.get(epoch * 56, ())] or ["-", "-"]
        print(f"{epoch:>5}" + "".join(f"{one:>8}{other:>9.4f} " for one, other in zip(ours, theirs)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="mushrooms.csv", help="the file from UCI; without it mushrooms are made")
    print_table(train_and_test(data=parser.parse_args().data))
