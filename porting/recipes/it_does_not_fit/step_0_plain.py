"""A small transformer learns a text in plain PyTorch."""

from __future__ import annotations

from porting.models import gpt
from porting.recipe_chain import Losses, draw_batches
from porting.recipes.it_does_not_fit.workload import make_parts, measure_loss, print_result


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, and the mean loss on the text to test with."""
    loader, test_set, model, optimizer = make_parts()
    losses = Losses()
    for tokens, labels in draw_batches(loader, num_steps):
        loss = gpt.loss(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses, test_loss=measure_loss(model, test_set))


if __name__ == "__main__":
    print_result(train(num_steps=100))
