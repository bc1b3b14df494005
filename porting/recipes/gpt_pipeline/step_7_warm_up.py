"""Warm-up: the step is compiled before the loop, and not inside its first call."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch

import porting
from porting.models import gpt
from porting.recipes.gpt_pipeline.workload import draw_batches, load_text, make_model, measure_loss, print_result

STAGES = {"blocks.1": 1, "blocks.2": 2, "blocks.3": 3, "head": 0}
KEPT = [f"blocks.{number}" for number in range(4)]
OPTIONS = porting.PortOptions(micro_batch=4, accumulation=10, output_mode="all", stages=STAGES, recompute=KEPT)


def look(model: gpt.GPT, options: porting.PortOptions) -> Any:
    """Estimate what each IPU needs for a training step of `model`; nothing is computed."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=options, returns=["loss"])
    tokens = torch.zeros(options.samples_per_call, model.position_embedding.shape[0], dtype=torch.int64)
    return porting.memory_report(ported, (tokens, tokens))


def look_at_gpt2(**options: Any) -> Any:
    """Estimate the same for the smallest published GPT-2; the device "meta" gives its weights no values."""
    with torch.device("meta"):
        model = gpt.build("gpt2_small")
    return look(model, porting.PortOptions(**options))


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
    ported.compile(*train_set[: OPTIONS.samples_per_call])
    losses: List[float] = []
    for tokens, labels in draw_batches(train_set, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())

    return losses, measure_loss(model, test_set)


if __name__ == "__main__":
    print(look(make_model(), OPTIONS), look_at_gpt2(), sep="\n\n", end="\n\n")
    print_result(*train_and_test(num_steps=300))
