"""A plain PyTorch program trains, tests after each epoch and keeps a log."""

from __future__ import annotations

from torch.utils.data import DataLoader

from porting.recipe_chain import Losses
from porting.recipes.mnist_trainer.workload import BATCH_SIZE, Log, count_epochs, evaluate, main, make_parts


def train(num_steps: int = 0, data: str = "") -> Losses:
    """Train for as many epochs as `num_steps` needs, or for ten; return the losses, and the log of the epochs."""
    loader, test_set, model, criterion, optimizer = make_parts(data)
    test_loader = DataLoader(test_set, batch_size=BATCH_SIZE)
    log = Log()
    for _epoch in range(count_epochs(num_steps, loader)):
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(images)
            loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()
            log.add(loss, (logits.argmax(dim=1) == labels).float().mean())
        log.end_epoch(evaluate(model, criterion, test_loader))
    return log.losses(num_steps)


if __name__ == "__main__":
    main(train, __doc__)
