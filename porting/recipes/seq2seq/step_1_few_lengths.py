"""Two lengths for all batches: padding that changes no loss."""

from __future__ import annotations

from itertools import islice
from typing import List, Optional, Tuple

import torch

from porting.models import seq2seq
from porting.recipes.seq2seq.workload import lengths_of, load_pairs, main, make_batches, make_model, test


def train(num_steps: int) -> List[float]:
    """Train and return the losses of `num_steps` optimizer steps."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses, and BLEU on the sentences to test with."""
    torch.manual_seed(0)
    train_pairs, test_pairs, buckets = load_pairs(path)
    longest = buckets.lengths[-1]
    model = make_model(train_pairs, longest)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    losses: List[float] = []
    for batch in islice(make_batches(train_pairs, buckets), num_steps):
        length = buckets.bucket_of(max(lengths_of(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        loss = seq2seq.loss(model(sources, targets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        return losses, test(model, test_pairs, longest)


if __name__ == "__main__":
    main(train_and_test, __doc__)
