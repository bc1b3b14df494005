"""Four batches of a length follow each other, so that the program is seldom changed."""

from __future__ import annotations

import porting
from porting.models import seq2seq
from porting.recipe_chain import Losses
from porting.recipes.seq2seq import workload

RUN = 4


def train(num_steps: int, path: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and BLEU on the sentences to test with."""
    train_pairs, test_pairs, buckets, model = workload.make_parts(path)
    options = porting.PortOptions(max_executables=len(buckets.lengths))
    ported = porting.to_ipu(model, seq2seq.loss, optimizer=workload.make_optimizer(model), options=options)
    losses = Losses()
    for batch in workload.make_batches(train_pairs, buckets, num_steps, run=RUN):
        length = buckets.bucket_of(max(workload.measure_lengths(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        _logits, loss = ported(sources, targets, labels)
        losses.append(loss.item())
    return Losses(losses, BLEU=workload.test(model, test_pairs, buckets))


if __name__ == "__main__":
    workload.main(train, __doc__)
