"""Plain PyTorch: a perceptron learns which mushrooms are poisonous."""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn
from torch.utils.data import DataLoader

from porting.recipe_chain import Losses
from porting.recipes.mushrooms.workload import BATCH_SIZE, History, accuracy, load_mushrooms, main, make_model


def train(num_steps: int = 50 * 56, data: Optional[str] = None) -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and with them all losses and accuracies."""
    train_set, order, test_set = load_mushrooms(data)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, sampler=order, drop_last=True)
    model, criterion = make_model(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = History()
    while len(history.steps) < num_steps:
        for features, poisonous in loader:
            optimizer.zero_grad()
            logits = model(features)
            loss = criterion(logits, poisonous)
            loss.backward()
            optimizer.step()
            history.steps.append((loss.item(), accuracy(logits, poisonous)))
        features, poisonous = test_set.tensors
        with torch.no_grad():
            logits = model(features)
        history.tests[len(history.steps)] = (criterion(logits, poisonous).item(), accuracy(logits, poisonous))
    return Losses([loss for loss, _accuracy in history.steps[:num_steps]], history=history)


if __name__ == "__main__":
    main(train, __doc__)
