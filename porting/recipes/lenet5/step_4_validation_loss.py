"""A validation loss follows each epoch: no mode is switched, no weight changes."""

from __future__ import annotations

from torch import nn

import porting
from porting.recipe_chain import Losses
from porting.recipes.lenet5.workload import main, make_parts


def train(num_steps: int, folder: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the test images' probabilities and labels."""
    test_set, loader, model, criterion, optimizer = make_parts(folder)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer)
    loader = ported.dataloader(loader)
    infer = ported.inference()
    losses = Losses()
    while len(losses) < num_steps:
        for images, labels in loader:
            _logits, loss = ported(images, labels)
            losses.append(loss.item())
        images, labels = test_set.tensors
        probabilities = infer(images)
        # `nn.CrossEntropyLoss` would take probabilities for logits
        validation_loss = nn.functional.nll_loss(probabilities.log(), labels).item()
        print(f"after {len(losses)} steps the validation loss is {validation_loss:.4f}")
    return Losses(losses[:num_steps], probabilities=probabilities, labels=labels)


if __name__ == "__main__":
    main(train, __doc__)
