"""Half precision: weights and activations take half of the memory."""

from __future__ import annotations

import copy
import itertools
from typing import Any, List, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting.data.text import make_markov_source
from porting.models import gpt

NUM_WORDS = 8
LENGTH = 16
STAGES = {"blocks.1": 1, "blocks.2": 2, "blocks.3": 3, "head": 0}
KEPT = [f"blocks.{number}" for number in range(4)]
OPTIONS = porting.PortOptions(
    micro_batch=4, accumulation=10, output_mode="all", stages=STAGES, recompute=KEPT, precision="float16"
)


def load_text() -> Tuple[TensorDataset, TensorDataset, float]:
    """Cut a text into windows to train with and to test with; return the least possible mean loss, too."""
    source = make_markov_source(NUM_WORDS, order=2, num_likely=2, seed=0)
    text = source.sample(LENGTH * 4_400 + 1, seed=1)
    tokens, labels = text[:-1].view(-1, LENGTH), text[1:].view(-1, LENGTH)
    return TensorDataset(tokens[400:], labels[400:]), TensorDataset(tokens[:400], labels[:400]), source.entropy


def make_model() -> gpt.GPT:
    """Make a transformer of four blocks, whose head uses the weight of the embedding again."""
    return gpt.build("small", num_layers=4, width=32, num_heads=4, length=LENGTH, vocabulary=NUM_WORDS).half()


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
    loader = DataLoader(train_set, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    ported = porting.to_ipu(model, gpt.loss, optimizer=optimizer, options=OPTIONS, returns=["loss"])
    ported.compile(*train_set[: OPTIONS.samples_per_call])
    losses: List[float] = []
    for tokens, labels in itertools.islice(batches, num_steps):
        (loss,) = ported(tokens, labels)
        losses.append(loss.mean().item())

    tokens, labels = test_set.tensors
    model = copy.deepcopy(model).float().eval()  # the host tests in single precision: its torch may have no other
    with torch.no_grad():
        test_loss = gpt.loss(model(tokens), labels).item()
    return losses, test_loss


if __name__ == "__main__":
    print(look(make_model(), OPTIONS), look_at_gpt2(), sep="\n\n", end="\n\n")
    losses, test_loss = train_and_test(num_steps=300)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"test loss {test_loss:.4f}, the least possible {load_text()[2]:.4f}")
