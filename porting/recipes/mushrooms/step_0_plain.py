"""A perceptron learns in plain PyTorch which mushrooms are poisonous."""

from __future__ import annotations

from porting.recipe_chain import Losses
from porting.recipes.mushrooms.workload import History, accuracy, main, make_parts


def train(num_steps: int = 50 * 56, data: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and with them all losses and accuracies."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    history = History()
    while len(history.steps) < num_steps:
        for features, poisonous in loader:
            optimizer.zero_grad()
            logits = model(features)
            loss = criterion(logits, poisonous)
            loss.backward()
            optimizer.step()
            history.steps.append((loss.item(), accuracy(logits, poisonous)))
        history.test(model, test_set)
    return Losses([loss for loss, _accuracy in history.steps[:num_steps]], history=history)


if __name__ == "__main__":
    main(train, __doc__)
