"""Four batches of a length in a row: few changes of program."""

from __future__ import annotations

import porting
from porting.models import seq2seq
from porting.recipe_chain import Losses
from porting.recipes.seq2seq import workload

RUN = 4


def train(num_steps: int, path: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and BLEU on the sentences to test with."""
    train_pairs, test_pairs, buckets, model = workload.make_parts(path)
    optimizers = {length: workload.make_optimizer(model) for length in buckets.lengths}
    ports = {length: porting.to_ipu(model, seq2seq.loss, optimizer=optimizers[length]) for length in optimizers}
    losses = Losses()
    last = buckets.lengths[0]
    for batch in workload.make_batches(train_pairs, buckets, num_steps, run=RUN):
        length = buckets.bucket_of(max(workload.measure_lengths(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        if length != last and losses:
            optimizers[length].load_state_dict(ports[last].optimizer_state_dict())
        _logits, loss = ports[length](sources, targets, labels)
        last = length
        losses.append(loss.item())
    return Losses(losses, BLEU=workload.test(model, test_pairs, buckets))


if __name__ == "__main__":
    workload.main(train, __doc__)
