"""A small classification, for a port and for Lightning."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting import PortOptions, to_ipu

LOSS = nn.CrossEntropyLoss()


def make_samples(rows=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (rows,), generator=generator))


def make_loader(rows=24, seed=0):
    """Batches of 6 rows; the last one of the validation may be smaller."""
    return DataLoader(make_samples(rows, seed), batch_size=6)


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make_optimizer(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def make_port(lr=0.1, **options):
    model = make_model()
    optimizer = make_optimizer(model, lr)
    ported = to_ipu(model, LOSS, optimizer=optimizer, options=PortOptions(**options), device="sim")
    return ported, optimizer


def accuracy(output, labels):
    return (output.argmax(1) == labels).float().mean()
