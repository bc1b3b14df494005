"""All steps share this: the text, a small transformer to train, and a large one of the same kind to plan for."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.text import make_markov_source
from porting.models import gpt
from porting.recipe_chain import Losses

NUM_WORDS = 8
LENGTH = 16
LARGE_LENGTH = 512
LARGE_BLOCKS = [f"blocks.{number}" for number in range(16)]
# what the plan of the large model proposes, besides a micro-batch of 1
LADDER: Dict[str, Any] = {"recompute": LARGE_BLOCKS, "optimizer_state": "off_chip"}


def make_parts() -> Tuple[DataLoader, TensorDataset, gpt.GPT, torch.optim.AdamW]:
    """Return batches to train with, windows to test with, the small model and its optimizer."""
    loader, test_set, _entropy = load_text()
    model = make_model()
    return loader, test_set, model, make_optimizer(model)


def load_text() -> Tuple[DataLoader, TensorDataset, float]:
    """Cut a text into windows; return batches of 40 to train with, those to test with, and the least possible loss."""
    source = make_markov_source(NUM_WORDS, order=2, num_likely=2, seed=0)
    text = source.sample(LENGTH * 2_400 + 1, seed=1)
    tokens, labels = text[:-1].view(-1, LENGTH), text[1:].view(-1, LENGTH)
    train_set, order = TensorDataset(tokens[400:], labels[400:]), torch.Generator().manual_seed(0)
    loader = DataLoader(train_set, batch_size=40, shuffle=True, generator=order)
    return loader, TensorDataset(tokens[:400], labels[:400]), source.entropy


def make_model() -> gpt.GPT:
    """Make a transformer of four blocks, always from the same seed; its head shares the embedding's weight."""
    torch.manual_seed(0)
    return gpt.build("small", num_layers=4, width=32, num_heads=4, length=LENGTH, vocabulary=NUM_WORDS)


def make_optimizer(model: gpt.GPT) -> torch.optim.AdamW:
    """Make the optimizer of the weights."""
    return torch.optim.AdamW(model.parameters(), lr=0.003)


def plan_model(model: gpt.GPT, options: porting.PortOptions, *, ipus: Optional[int] = None) -> Any:
    """Plan the training of `model` on a Bow Pod16 without computing it."""
    tokens = torch.zeros(options.samples_per_call, model.position_embedding.shape[0], dtype=torch.int64)
    return porting.plan(
        model, gpt.loss, (tokens, tokens), make_optimizer(model), options, "bow-pod16", ipus=ipus, returns=["loss"]
    )


def plan_large(*, ipus: Optional[int] = None, **options: Any) -> Any:
    """Plan the training of 235 million weights in half precision; the device "meta" gives them no values."""
    with torch.device("meta"):
        model = gpt.build(
            "gpt2_small", num_layers=16, width=1024, num_heads=16, length=LARGE_LENGTH, vocabulary=32_768
        ).half()
    return plan_model(model, porting.PortOptions(precision="float16", **options), ipus=ipus)


def measure_loss(model: gpt.GPT, test_set: TensorDataset) -> float:
    """Return the mean loss on the text to test with, computed on the host."""
    tokens, labels = test_set.tensors
    model.eval()
    with torch.no_grad():
        return gpt.loss(model(tokens), labels).item()


def print_result(losses: Losses) -> None:
    """Print how well the text has been learnt, and how well it can be."""
    print(losses.fall)
    print(f"test loss {losses.measured.test_loss:.4f}, the least possible {load_text()[2]:.4f}")
