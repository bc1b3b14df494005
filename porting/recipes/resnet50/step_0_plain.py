"""ResNet-50 trains in plain PyTorch, with all that training in large batches needs."""

from __future__ import annotations

from porting.recipe_chain import Losses, draw_batches, measure_accuracy
from porting.recipes.resnet50 import workload


def train(num_steps: int, setup: workload.Setup = workload.Setup()) -> Losses:
    """Return losses and learning rates of `num_steps` steps, and the accuracy on images that were not trained on."""
    _train_set, loader, model, criterion = workload.make_parts(setup)
    optimizer = workload.make_optimizer(model, lr=setup.base_rate * setup.batch_size / 256)
    scheduler = workload.make_schedule(optimizer, setup, setup.batch_size)
    losses, rates = Losses(), []
    for images, labels in draw_batches(loader, num_steps):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()

    accuracy = measure_accuracy(model, workload.load_test_images(setup))
    return Losses(losses, rates=rates, accuracy=accuracy)


if __name__ == "__main__":
    workload.main(train, __doc__, num_steps=288)
