"""All steps share this: sentences and their batches, the model, its score, and the command line."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from porting.buckets import Buckets, choose_buckets
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
    return train_pairs, test_pairs, choose_buckets(measure_lengths(pairs), NUM_BUCKETS)


def measure_lengths(pairs: Pairs) -> List[int]:
    """Return the length that each pair needs, in its source or its target."""
    return [max(lengths) for lengths in zip(pairs.source_lengths, pairs.target_lengths)]


def make_batches(pairs: Pairs, buckets: Buckets, num_batches: int, *, run: int = 1) -> Iterator[Pairs]:
    """Draw full batches, each from one bucket, so that its sentences are of similar lengths; so are `run` in a row."""
    generator = torch.Generator().manual_seed(0)
    num_drawn = 0
    while num_drawn < num_batches:
        runs: List[List[List[int]]] = []
        for members in buckets.members(measure_lengths(pairs)):
            order = [members[place] for place in torch.randperm(len(members), generator=generator)]
            batches = [order[i : i + BATCH_SIZE] for i in range(0, len(order) - BATCH_SIZE + 1, BATCH_SIZE)]
            runs += [batches[i : i + run] for i in range(0, len(batches), run)]
        for number in torch.randperm(len(runs), generator=generator):
            batches = runs[number][: num_batches - num_drawn]
            num_drawn += len(batches)
            yield from map(pairs.select, batches)


def make_parts(path: str) -> Tuple[Pairs, Pairs, Buckets, seq2seq.Seq2Seq]:
    """Return the results of `load_pairs`, and two stacks of LSTMs for the words, always from the same seed."""
    pairs, test_pairs, buckets = load_pairs(path)
    torch.manual_seed(0)
    sizes = {"source_vocabulary": len(pairs.source_vocabulary), "target_vocabulary": len(pairs.target_vocabulary)}
    # without Dropout, which would draw numbers for padding, too
    return pairs, test_pairs, buckets, seq2seq.build("small", dropout=0.0, max_length=buckets.lengths[-1], **sizes)


def make_optimizer(model: seq2seq.Seq2Seq) -> torch.optim.Adam:
    """Make an optimizer of all weights."""
    return torch.optim.Adam(model.parameters(), lr=0.005)


def test(run: Callable[..., Any], pairs: Pairs, buckets: Buckets) -> float:
    """Return BLEU of the translations of `run`, whose sources are padded to the longest bucket."""
    longest = buckets.lengths[-1]
    sources, _targets, _labels = pairs.tensors(source_length=longest, target_length=longest)
    with predicting(run):
        return seq2seq.bleu(seq2seq.cut_at_end(run(sources), end=END), pairs.targets)


def main(train: Callable[[int, str], Losses], description: Optional[str]) -> None:
    """Train as the command line says, and print loss and score."""
    data = "a file with a pair of sentences a line, a tabulator between; else made"
    arguments = read_command_line(description, data=data, steps=400)
    print(train(arguments.steps, arguments.data))
