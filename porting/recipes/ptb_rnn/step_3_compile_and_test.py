"""Compile before the loop; measure the perplexity on the device."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

import porting
from porting.recipes.ptb_rnn import workload
from porting.recipes.ptb_rnn.workload import LENGTH, NUM_TEST_TEXTS, NUM_TEXTS, window_loss


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses per token of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], float, float]:
    """Train as `train` does; return its losses, the mean loss on the text to test with, and the least possible one."""
    torch.manual_seed(0)
    train_set, test_set, num_words, entropy = workload.make_windows(path)
    loader, test_loader = workload.make_loaders(train_set, test_set)
    model = workload.make_model(num_words)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler: Any = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    ported = porting.to_ipu(model, window_loss, optimizer=optimizer, max_grad_norm=5.0)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    test_loader = ported.dataloader(test_loader, training=False)
    tokens, labels = train_set[:NUM_TEXTS]
    ported.compile(tokens, *model.first_state(NUM_TEXTS), labels)
    losses: List[float] = []
    while len(losses) < num_steps:
        hidden, cell = model.first_state(NUM_TEXTS)
        for tokens, labels in loader:
            (_logits, hidden, cell), loss = ported(tokens, hidden, cell, labels)
            losses.append(loss.item() / LENGTH)
        scheduler.step()

    test_loss = workload.test(ported.inference(), test_loader, model.first_state(NUM_TEST_TEXTS))
    return losses[:num_steps], test_loss, entropy


if __name__ == "__main__":
    workload.main(train_and_test, __doc__)
