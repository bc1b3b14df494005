"""A port for each length: they share weights and hand over Adam's state."""

from __future__ import annotations

from itertools import islice

import torch

import porting
from porting.models import seq2seq
from porting.recipe_chain import Losses
from porting.recipes.seq2seq.workload import lengths_of, load_pairs, main, make_batches, make_model, test


def train(num_steps: int, path: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and BLEU on the sentences to test with."""
    train_pairs, test_pairs, buckets = load_pairs(path)
    longest = buckets.lengths[-1]
    model = make_model(train_pairs, longest)
    optimizers = {length: torch.optim.Adam(model.parameters(), lr=0.005) for length in buckets.lengths}
    ports = {length: porting.to_ipu(model, seq2seq.loss, optimizer=optimizers[length]) for length in optimizers}
    losses = Losses()
    last = buckets.lengths[0]
    for batch in islice(make_batches(train_pairs, buckets), num_steps):
        length = buckets.bucket_of(max(lengths_of(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        if length != last and losses:
            optimizers[length].load_state_dict(ports[last].optimizer_state_dict())
        _logits, loss = ports[length](sources, targets, labels)
        last = length
        losses.append(loss.item())
    return Losses(losses, BLEU=test(model, test_pairs, longest))


if __name__ == "__main__":
    main(train, __doc__)
