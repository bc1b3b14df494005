"""Four batches of a length in a row: few changes of program."""

from __future__ import annotations

import argparse
from typing import Any, Iterator, List, Optional, Tuple

import torch

import porting
from porting.data.buckets import Buckets, choose_buckets
from porting.data.translation import END, Pairs, make_pairs, read_pairs
from porting.models import seq2seq

BATCH_SIZE = 32
NUM_BUCKETS = 2
RUN = 4


def load_pairs(path: Optional[str] = None) -> Tuple[Pairs, Pairs, Buckets]:
    """Return sentences to train with, others to test with, and the lengths to sort the former by."""
    pairs = read_pairs(path) if path else make_pairs(3000, task="grammar", seed=0)
    cut = len(pairs) * 14 // 15
    train_pairs, test_pairs = pairs.select(range(cut)), pairs.select(range(cut, len(pairs)))
    return train_pairs, test_pairs, choose_buckets(lengths_of(pairs), NUM_BUCKETS)


def lengths_of(pairs: Pairs) -> List[int]:
    """Return how many places each pair needs, in its source or its target."""
    return [max(lengths) for lengths in zip(pairs.source_lengths, pairs.target_lengths)]


def make_batches(pairs: Pairs, buckets: Buckets) -> Iterator[Pairs]:
    """Draw full batches for ever, each from one bucket, and so are RUN of them in a row."""
    generator = torch.Generator().manual_seed(0)
    while True:
        runs: List[List[List[int]]] = []
        for members in buckets.members(lengths_of(pairs)):
            order = [members[place] for place in torch.randperm(len(members), generator=generator)]
            batches = [order[i : i + BATCH_SIZE] for i in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE)]
            runs += [batches[i : i + RUN] for i in range(0, len(batches), RUN)]
        for number in torch.randperm(len(runs), generator=generator):
            yield from (pairs.select(batch) for batch in runs[number])


def test(run: Any, pairs: Pairs, length: int) -> float:
    """Return BLEU of what `run` makes of the sources."""
    sources, _targets, _labels = pairs.tensors(source_length=length, target_length=length)
    return seq2seq.bleu(seq2seq.cut_at_end(run(sources), end=END), pairs.targets)


def train(num_steps: int) -> List[float]:
    """Train and return the losses of `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses, and BLEU on the sentences to test with."""
    torch.manual_seed(0)
    train_pairs, test_pairs, buckets = load_pairs(path)
    longest = buckets.lengths[-1]
    vocabularies = len(train_pairs.source_vocabulary), len(train_pairs.target_vocabulary)
    # without Dropout, which would draw numbers for padding, too
    sizes = {"source_vocabulary": vocabularies[0], "target_vocabulary": vocabularies[1], "max_length": longest}
    model = seq2seq.build("small", dropout=0.0, **sizes)
    optimizers = {length: torch.optim.Adam(model.parameters(), lr=0.005) for length in buckets.lengths}
    ports = {length: porting.to_ipu(model, seq2seq.loss, optimizer=optimizers[length]) for length in optimizers}
    losses: List[float] = []
    last = buckets.lengths[0]
    for batch in make_batches(train_pairs, buckets):
        if len(losses) == num_steps:
            break
        length = buckets.bucket_of(max(lengths_of(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        if length != last and losses:
            optimizers[length].load_state_dict(ports[last].optimizer_state_dict())
        _logits, loss = ports[length](sources, targets, labels)
        last = length
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        return losses, test(model, test_pairs, longest)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="a file with a pair of sentences a line, a tabulator between; else made")
    arguments.add_argument("--steps", type=int, default=400)
    parsed = arguments.parse_args()
    losses, score = train_and_test(parsed.steps, parsed.data)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, BLEU {score:.3f}")
