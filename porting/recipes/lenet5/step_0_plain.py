"""LeNet-5 in plain PyTorch gives its loss logits, and probabilities in `eval()`."""

from __future__ import annotations

import torch

from porting.recipe_chain import Losses
from porting.recipes.lenet5.workload import main, make_parts


def train(num_steps: int, folder: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the test images' probabilities and labels."""
    test_set, loader, model, criterion, optimizer = make_parts(folder)
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    images, labels = test_set.tensors
    model.eval()
    with torch.no_grad():
        probabilities = model(images)
    return Losses(losses[:num_steps], probabilities=probabilities, labels=labels)


if __name__ == "__main__":
    main(train, __doc__)
