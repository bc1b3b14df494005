"""Several processes train together: each has a replica and its share of the images, and one of them tells."""

from __future__ import annotations

import argparse
from itertools import count, islice
from typing import Any, Dict, Iterator, List, NamedTuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

import porting
from porting.adapters import sum_over_instances
from porting.data.digits import make_digits
from porting.models import mlp

BATCH_SIZE = 64
NUM_REPLICAS = 2
LEARNING_RATE = 0.05


class Training(NamedTuple):
    """The loss of each step and the weights after the last one; how many test images are recognised, of how many."""

    losses: List[float]
    weights: Dict[str, torch.Tensor]
    num_recognised: int
    num_tested: int


def load_images(num_images: int, *, seed: int) -> TensorDataset:
    """Draw digits, and lay the 28 x 28 pixels of each in a row."""
    images, labels = make_digits(num_images, seed=seed)
    return TensorDataset(images.flatten(start_dim=1), labels)


def batches_of(loader: Any, order: Any) -> Iterator[Any]:
    """Yield the batches of epoch after epoch, each in an order of its own."""
    for epoch in count():
        order.set_epoch(epoch)
        yield from loader


def train(num_steps: int) -> List[float]:
    """Return the losses of the first `num_steps` optimizer steps."""
    return train_and_test(num_steps).losses


def train_and_test(num_steps: int) -> Training:
    """Train as `train` does, and test with images that were not trained on."""
    torch.manual_seed(0)
    train_set, test_set = load_images(2048, seed=0), load_images(500, seed=1)
    instance = porting.this_instance()
    order = porting.partition(train_set, shuffle=True)
    model, criterion = mlp.build("mnist_small"), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    replicas = NUM_REPLICAS // instance.size
    options = porting.PortOptions(micro_batch=BATCH_SIZE // NUM_REPLICAS, replicas=replicas, output_mode="all")
    ported = porting.to_ipu(model, criterion, optimizer=optimizer, options=options)
    loader = ported.dataloader(order)
    losses: List[float] = []
    for images, labels in islice(batches_of(loader, order), num_steps):
        _logits, loss = ported(images, labels)
        losses.append(sum_over_instances(loss.mean()).item() / instance.size)

    images, labels = test_set.tensors
    logits = ported.inference()(images)
    num_recognised = int((logits.argmax(dim=1) == labels).sum())
    return Training(losses, ported.state_dict(), num_recognised, len(labels))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160, help="how many optimizer steps to train; 5 epochs by default")
    parser.add_argument("--checkpoint", help="file to save losses and weights in; each instance adds its number")
    arguments = parser.parse_args()
    training = train_and_test(arguments.steps)
    if arguments.checkpoint:
        torch.save(training._asdict(), f"{arguments.checkpoint}-{porting.this_instance().index}")
    first, last = training.losses[0], training.losses[-1]
    share = training.num_recognised / training.num_tested
    if porting.this_instance().index == 0:
        print(f"loss {first:.4f} -> {last:.4f}, test accuracy {share:.3f} of {training.num_tested} images")
