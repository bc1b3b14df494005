"""A plain PyTorch program trains on a text by truncated backpropagation."""

from __future__ import annotations

from torch import nn

from porting.recipe_chain import Losses
from porting.recipes.ptb_rnn import workload
from porting.recipes.ptb_rnn.workload import LENGTH, NUM_TEST_TEXTS, NUM_TEXTS, window_loss


def train(num_steps: int, path: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses per token, and the mean loss of the test."""
    loader, test_loader, model, optimizer, scheduler = workload.make_parts(path)
    losses = Losses()
    while len(losses) < num_steps:
        hidden, cell = model.first_state(NUM_TEXTS)
        for tokens, labels in loader:
            outputs = model(tokens, hidden, cell)
            loss = window_loss(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            # the gradient ends here: it goes back one window
            hidden, cell = outputs[1].detach(), outputs[2].detach()
            losses.append(loss.item() / LENGTH)
        scheduler.step()

    test_loss = workload.test(model, test_loader, model.first_state(NUM_TEST_TEXTS))
    return Losses(losses[:num_steps], test_loss=test_loss)


if __name__ == "__main__":
    workload.main(train, __doc__)
