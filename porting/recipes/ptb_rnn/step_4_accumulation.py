"""Four micro-batches of five texts make an optimizer step, each with its own state."""

from __future__ import annotations

import porting
from porting.recipe_chain import Losses
from porting.recipes.ptb_rnn import workload
from porting.recipes.ptb_rnn.workload import LENGTH, NUM_TEST_TEXTS, NUM_TEXTS, window_loss


def train(num_steps: int, path: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses per token, and the mean loss of the test."""
    loader, test_loader, model, optimizer, scheduler = workload.make_parts(path)
    options = porting.PortOptions(micro_batch=5, accumulation=4, output_mode="all")
    ported = porting.to_ipu(model, window_loss, optimizer=optimizer, max_grad_norm=5.0, options=options)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    test_loader = ported.dataloader(test_loader, training=False)
    tokens, labels = next(iter(loader))
    ported.compile(tokens, *model.first_state(NUM_TEXTS), labels)
    losses = Losses()
    while len(losses) < num_steps:
        hidden, cell = model.first_state(NUM_TEXTS)
        for tokens, labels in loader:
            (_logits, hidden, cell), loss = ported(tokens, hidden, cell, labels)
            losses.append(loss.mean().item() / LENGTH)
        scheduler.step()

    test_loss = workload.test(ported.inference(), test_loader, model.first_state(NUM_TEST_TEXTS))
    return Losses(losses[:num_steps], test_loss=test_loss)


if __name__ == "__main__":
    workload.main(train, __doc__)
