"""A perceptron for MNIST trains in plain PyTorch, with the flags of the original example."""

from __future__ import annotations

from typing import Optional, Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.mnist_export_compile.workload import SMALL, load_data, make_model, make_parser, save


def train(num_steps: int = 0, words: Optional[Sequence[str]] = SMALL) -> Losses:
    """Train as a command line says, or for `num_steps`; return the losses, and how many digits are recognised."""
    arguments = make_parser(__doc__).parse_args(words)
    torch.manual_seed(0)
    train_set, test_set = load_data(arguments)
    loader = DataLoader(train_set, batch_size=arguments.batchsize)
    num_steps = num_steps or arguments.iterations or arguments.epoch * len(loader)
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
    return Losses(losses[:num_steps], test_accuracy=measure_accuracy(model, test_set), model=model, arguments=arguments)


if __name__ == "__main__":
    save(train(words=None))
