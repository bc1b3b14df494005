"""The device's loader gives dictionaries; compiled before the first step."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch.utils.data import default_collate
from transformers import get_linear_schedule_with_warmup

import porting
from porting.recipes.fine_tune_bert import workload
from porting.recipes.fine_tune_bert.workload import Sentences


def train(num_steps: int) -> List[float]:
    """Train on 16 new sentences in each of `num_steps` optimizer steps and return the losses."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of other sentences that are understood afterwards."""
    torch.manual_seed(0)
    train_set, test_set = Sentences(16 * num_steps, seed=0), Sentences(400, seed=1)
    loader = workload.make_loader(train_set)
    model = workload.make_model().train()
    optimizer = workload.make_optimizer(model)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=20, num_training_steps=240)
    ported = porting.to_ipu(model, optimizer=optimizer)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    ported.compile(**default_collate([train_set[index] for index in range(16)]))
    losses: List[float] = []
    for batch in loader:
        loss = ported(**batch).loss
        scheduler.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        return losses, workload.measure_accuracy(model, test_set)


if __name__ == "__main__":
    workload.print_result(*train_and_test(num_steps=240))
