"""Plain PyTorch: a perceptron for MNIST with the flags of the original example."""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.mnist_export_compile.workload import load_data, make_model, make_parser, run


def parse_arguments(words: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Read the command line."""
    return make_parser(__doc__).parse_args(words)


def train(num_steps: int) -> Losses:
    """Train a smaller network for `num_steps` optimizer steps, as `train_and_test` does."""
    return train_and_test(parse_arguments(["--unit", "100", "--iterations", str(num_steps)]))


def train_and_test(arguments: argparse.Namespace) -> Losses:
    """Train; return the losses, the share of test digits recognised, and the model."""
    torch.manual_seed(0)
    train_set, test_set = load_data(arguments)
    loader = DataLoader(train_set, batch_size=arguments.batchsize)
    num_steps = arguments.iterations or arguments.epoch * len(loader)
    model = make_model(arguments)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return Losses(losses[:num_steps], test_accuracy=measure_accuracy(model, test_set), model=model)


if __name__ == "__main__":
    run(train_and_test, parse_arguments())
