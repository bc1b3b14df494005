"""Two IPUs: a stage for each half of the blocks, and one for the head."""

from __future__ import annotations

from typing import List, Tuple

import torch

import porting
from porting.models import gpt
from porting.recipes.gpt_pipeline.workload import draw_batches, load_text, make_model, measure_loss, print_result

STAGES = {"blocks.2": 1, "head": 0}
OPTIONS = porting.PortOptions(micro_batch=4, accumulation=10, output_mode="all", stages=STAGES)


def train(num_steps: int) -> List[float]:
    """Train and return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the mean loss on the text to test with."""
    torch.manual_seed(0)
    train_set, test_set, _entropy = load_text()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=OPTIONS, returns=["loss"])
    losses: List[float] = []
    for tokens, labels in draw_batches(train_set, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())

    return losses, measure_loss(model, test_set)


if __name__ == "__main__":
    print_result(*train_and_test(num_steps=300))
