"""What tests of loaders share: counting samples, and loaders of them for a device."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.utils.data import TensorDataset

from porting.adapters.batches import to_ipu_dataloader
from porting.simulator._dataloader import DataLoader
from porting.simulator.options import Options

BACKEND = SimpleNamespace(DataLoader=DataLoader)


def device(*, iterations=1, accumulation=1, replicas=1):
    options = Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    return options


def convert(source, options=None, **arguments):
    return to_ipu_dataloader(source, options or device(), backend=BACKEND, **arguments)


def numbers(count):
    return TensorDataset(torch.arange(count))


def torch_loader(dataset, batch_size=4, **arguments):
    return torch.utils.data.DataLoader(dataset, batch_size, **arguments)


def order(loader):
    """Return the samples of one epoch in the order of loading."""
    return [sample for batch in loader for sample in batch[0].tolist()]
