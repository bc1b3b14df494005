"""A loop in a loop trains in plain PyTorch, with progress bars."""

from __future__ import annotations

from torch.utils.data import DataLoader
from tqdm import tqdm

from porting.recipe_chain import Losses, measure_accuracy
from porting.recipes.mnist_loop.workload import BATCH_SIZE, count_epochs, load_digits, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and each test's accuracy."""
    train_set, order, test_set = load_digits(data)
    loader = DataLoader(train_set, batch_size=BATCH_SIZE, sampler=order)
    model, criterion, optimizer = make_parts()
    losses, accuracies = Losses(), []

    for _epoch in tqdm(range(count_epochs(num_steps, train_set)), desc="epochs"):
        for images, labels in tqdm(loader, desc="batches", leave=False):
            optimizer.zero_grad()
            output = model(images)
            loss = criterion(output, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

        accuracies.append(measure_accuracy(model, test_set))
    return Losses(losses[: num_steps or None], accuracies=accuracies)


if __name__ == "__main__":
    main(train, __doc__)
