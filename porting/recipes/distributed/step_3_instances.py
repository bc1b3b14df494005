"""Several processes train together: each has a replica and its share of the images, and one of them prints."""

from __future__ import annotations

import porting
from porting.adapters import sum_over_instances
from porting.recipe_chain import Losses
from porting.recipes.distributed.workload import count_recognised, draw_batches, load_images, main, make_parts

BATCH_SIZE = 64
NUM_REPLICAS = 2
LEARNING_RATE = 0.05


def train(num_steps: int) -> Losses:
    """Return the losses of `num_steps` optimizer steps, the weights, and how many test images are recognised."""
    train_set, test_set = load_images(2048, seed=0), load_images(500, seed=1)
    instance = porting.this_instance()
    order = porting.partition(train_set, shuffle=True)
    model, criterion, optimizer = make_parts(LEARNING_RATE)
    replicas = NUM_REPLICAS // instance.size
    options = porting.PortOptions(micro_batch=BATCH_SIZE // NUM_REPLICAS, replicas=replicas, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(order)
    losses = Losses()
    for images, labels in draw_batches(loader, order, num_steps):
        _logits, loss = ported(images, labels)
        losses.append(sum_over_instances(loss.mean()).item() / instance.size)

    num_recognised = count_recognised(ported.inference(), test_set)
    return Losses(losses, weights=ported.state_dict(), num_recognised=num_recognised, num_tested=len(test_set))


if __name__ == "__main__":
    main(train, __doc__, instance=porting.this_instance().index)
