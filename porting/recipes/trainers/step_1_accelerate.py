"""The model that accelerate's `prepare` gives back is the same one, and its calls run on the device."""

from __future__ import annotations

from porting.integrations.accelerate import Accelerator
from porting.recipe_chain import Losses, draw_batches, measure_accuracy
from porting.recipes.trainers.workload import NUM_STEPS, main, make_parts


def train(num_steps: int = NUM_STEPS, data: str = "") -> Losses:
    """Train `num_steps` steps and return the losses, with the accuracy of a test."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for images, labels in draw_batches(loader, num_steps):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses, test_accuracy=measure_accuracy(model, test_set))


if __name__ == "__main__":
    main(train, __doc__)
