"""What the tests of loaders share: options, small datasets, and what a loader yields of them."""

from __future__ import annotations

import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, TensorDataset

from porting.simulator.options import Options


def options_for(*, iterations=1, accumulation=1, replicas=1, processes=1):
    """Make options for loaders."""
    options = Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Distributed.configureProcessId(0, processes)
    return options


def numbers(count):
    """Make a dataset of the numbers up to `count`."""
    return TensorDataset(torch.arange(count))


def seen(loader):
    """List the first tensors of an epoch's batches as lists."""
    return [batch[0].tolist() for batch in loader]


class Counting(IterableDataset):
    """Counts to `stop`, divided between the workers."""

    def __init__(self, stop):
        self.stop = stop

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        parts = torch.arange(self.stop).chunk(worker.num_workers if worker else 1)
        return iter(parts[worker.id if worker else 0])

    def __len__(self):
        return self.stop


def batches_of(count, size, drop_last=False):
    """Make a sampler of `count` numbers in batches of `size`."""
    return BatchSampler(SequentialSampler(range(count)), size, drop_last)
