"""Eight replicas train instead of two: steps have 256 images, and the learning rate grows with them."""

from __future__ import annotations

import torch

import porting
from porting.adapters import sum_over_instances
from porting.recipe_chain import Losses
from porting.recipes.distributed.workload import draw_batches, load_images, main, make_parts

BATCH_SIZE = 256
NUM_REPLICAS = 8
LEARNING_RATE = 0.05  # for steps of 64 images


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, the weights, and how many test images are recognised."""
    train_set, test_set = load_images(2048, seed=0), load_images(500, seed=1)
    instance = porting.this_instance()
    order = porting.partition(train_set, shuffle=True)
    replicas = NUM_REPLICAS // instance.size
    options = porting.PortOptions(micro_batch=BATCH_SIZE // NUM_REPLICAS, replicas=replicas, output_mode="all")
    rate = LEARNING_RATE * instance.size * options.samples_per_step / 64
    model, criterion, optimizer = make_parts(rate)
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(order)
    losses = Losses()
    for images, labels in draw_batches(loader, order, num_steps):
        _logits, loss = ported(images, labels)
        losses.append(sum_over_instances(loss.mean()).item() / instance.size)

    padded = porting.FixedBatchDataset(test_set, batch_size=instance.size * options.samples_per_call)
    counts = torch.zeros(2)
    for images, labels in ported.dataloader(porting.partition(padded), training=False):
        recognised = ported.inference()(images).argmax(dim=1) == labels
        counts += torch.stack([recognised.sum(), (labels >= 0).sum()])
    num_recognised, num_tested = sum_over_instances(counts).int().tolist()
    return Losses(losses, weights=ported.state_dict(), num_recognised=num_recognised, num_tested=num_tested)


if __name__ == "__main__":
    main(train, __doc__, num_steps=40, instance=porting.this_instance().index)
