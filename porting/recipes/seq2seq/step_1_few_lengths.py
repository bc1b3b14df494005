"""All batches have one of two lengths: the padding changes no loss."""

from __future__ import annotations

from porting.models import seq2seq
from porting.recipe_chain import Losses
from porting.recipes.seq2seq import workload


def train(num_steps: int, path: str = "") -> Losses:
    """Return the losses of `num_steps` optimizer steps, and BLEU on the sentences to test with."""
    train_pairs, test_pairs, buckets, model = workload.make_parts(path)
    optimizer = workload.make_optimizer(model)
    losses = Losses()
    for batch in workload.make_batches(train_pairs, buckets, num_steps):
        length = buckets.bucket_of(max(workload.measure_lengths(batch)))
        sources, targets, labels = batch.tensors(source_length=length, target_length=length)
        loss = seq2seq.loss(model(sources, targets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Losses(losses, BLEU=workload.test(model, test_pairs, buckets))


if __name__ == "__main__":
    workload.main(train, __doc__)
