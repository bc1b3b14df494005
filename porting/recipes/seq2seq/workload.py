"""Shared by all steps: sentences and their batches, the model, its score, and the command line."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from porting.data.buckets import Buckets, choose_buckets
from porting.data.translation import END, Pairs, make_pairs, read_pairs
from porting.models import seq2seq
from porting.recipe_chain import Losses, predicting, read_command_line

BATCH_SIZE = 32
NUM_BUCKETS = 2


def load_pairs(path: str = "") -> Tuple[Pairs, Pairs, Buckets]:
    """Return sentences to train with, others to test with, and the lengths to sort the former by."""
    pairs = read_pairs(path) if path else make_pairs(3000, task="grammar", seed=0)
    cut = len(pairs) * 14 // 15
    train_pairs, test_pairs = pairs.select(range(cut)), pairs.select(range(cut, len(pairs)))
    return train_pairs, test_pairs, choose_buckets(lengths_of(pairs), NUM_BUCKETS)


def lengths_of(pairs: Pairs) -> List[int]:
    """Return how many places each pair needs, in its source or its target."""
    return [max(lengths) for lengths in zip(pairs.source_lengths, pairs.target_lengths)]


def make_batches(pairs: Pairs, buckets: Buckets, *, run: int = 1) -> Iterator[Pairs]:
    """Draw full batches for ever, each from one bucket, so that its sentences are of similar lengths.

    So are `run` of them in a row.
    """
    generator = torch.Generator().manual_seed(0)
    while True:
        runs: List[List[List[int]]] = []
        for members in buckets.members(lengths_of(pairs)):
            order = [members[place] for place in torch.randperm(len(members), generator=generator)]
            batches = [order[i : i + BATCH_SIZE] for i in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE)]
            runs += [batches[i : i + run] for i in range(0, len(batches), run)]
        for number in torch.randperm(len(runs), generator=generator):
            yield from (pairs.select(batch) for batch in runs[number])


def make_model(pairs: Pairs, longest: int) -> seq2seq.Seq2Seq:
    """Make two stacks of LSTMs for the words of `pairs`, always from the same seed."""
    torch.manual_seed(0)
    sizes = {"source_vocabulary": len(pairs.source_vocabulary), "target_vocabulary": len(pairs.target_vocabulary)}
    # without Dropout, which would draw numbers for padding, too
    return seq2seq.build("small", dropout=0.0, max_length=longest, **sizes)


def test(run: Any, pairs: Pairs, length: int) -> float:
    """Return BLEU of what `run` makes of the sources."""
    sources, _targets, _labels = pairs.tensors(source_length=length, target_length=length)
    with predicting(run):
        return seq2seq.bleu(seq2seq.cut_at_end(run(sources), end=END), pairs.targets)


def main(train: Callable[[int, str], Losses], description: Optional[str]) -> None:
    """Train on what the command line says, and print loss and score."""
    data = "a file with a pair of sentences a line, a tabulator between; else made"
    arguments = read_command_line(description, data=data, steps=400)
    print(train(arguments.steps, arguments.data))
