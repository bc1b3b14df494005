"""Two lengths for all batches: padding that changes no loss."""

from __future__ import annotations

from itertools import islice

import torch

from porting.models import seq2seq
from porting.recipe_chain import Losses
from porting.recipes.seq2seq.workload import lengths_of, load_pairs, main, make_batches, make_model, test


def train(num_steps: int, path: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and BLEU on the sentences to test with."""
    train_pairs, test_pairs, buckets = load_pairs(path)
    longest = buckets.lengths[-1]
    model = make_model(train_pairs, longest)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    losses = Losses()
    for batch in islice(make_batches(train_pairs, buckets), num_steps):
        length = buckets.bucket_of(max(lengths_of(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        loss = seq2seq.loss(model(sources, targets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses, BLEU=test(model, test_pairs, longest))


if __name__ == "__main__":
    main(train, __doc__)
