"""Buffers that `forward` assigns anew, as spiking layers do, have the values of plain PyTorch in a port."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.adapters.assigned_buffers import keep_assigned_buffers
from porting.diagnostics import CaptureError


class Leaky(nn.Module):
    """A spiking layer: its membrane potential decays, and falls by one where it is above."""

    def __init__(self, shape=(6, 3)):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("mem", torch.zeros(shape), persistent=False)

    def reset(self):
        self.mem = torch.zeros_like(self.mem)
        return self.mem

    def forward(self, x, mem=None):
        if mem is not None:
            self.mem = mem
        if self.mem.shape != x.shape:
            self.mem = torch.zeros_like(x)
        self.mem = self.beta * self.mem + x - (self.mem > 1).float().detach()
        return self.mem


class Carrying(nn.Module):
    """The potential goes on from call to call."""

    def __init__(self, shape=(6, 3)):
        super().__init__()
        self.linear, self.leaky = nn.Linear(4, 3), Leaky(shape)

    def forward(self, x):
        return self.leaky(self.linear(x))


class Recurrent(Carrying):
    """Each call runs over steps in time, and begins anew."""

    def forward(self, x):
        mem = self.leaky.reset()
        for _step in range(3):
            mem = self.leaky(self.linear(x), mem)
        return mem


def make_batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)


@pytest.mark.parametrize("loop", ["device", "host"])
@pytest.mark.parametrize("kind", [Carrying, Recurrent])
def test_an_assigned_buffer_trains_as_in_eager(kind, loop):
    model = kind()
    plain = copy.deepcopy(model)
    ours, theirs = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, plain))
    settings = {"loop": "host"} if loop == "host" else {"loss": F.cross_entropy, "optimizer": ours}
    ported = to_ipu(model, device="sim", options=PortOptions(engine="replay"), **settings)

    for x, y in map(make_batch, range(4)):
        for run, optimizer in [(plain, theirs), *([(ported, ours)] if loop == "host" else [])]:
            plain.leaky.mem = plain.leaky.mem.detach()
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
        if loop == "device":
            ported(x, y)

    torch.testing.assert_close(dict(model.named_parameters()), dict(plain.named_parameters()))
    torch.testing.assert_close(model.leaky.mem, plain.leaky.mem.detach())


def test_a_buffer_of_another_shape_is_refused_with_a_help_that_works():
    model = Recurrent(shape=(0,))
    x, y = make_batch(0)
    with pytest.raises(CaptureError, match=r"C006(.|\n)*which is \[0\], and \[6, 3\] here: `with torch.no_grad\(\)"):
        to_ipu(model, F.cross_entropy, device="sim")(x, y)

    with torch.no_grad():
        model(x)
    to_ipu(model, F.cross_entropy, device="sim")(x, y)


def test_buffers_that_change_places_keep_each_others_values():
    model = nn.Module()
    model.register_buffer("one", torch.tensor([1.0]))
    model.register_buffer("other", torch.tensor([2.0]))
    one, other = model.one, model.other

    with keep_assigned_buffers(model):
        model.one, model.other = model.other, model.one

    assert model.one is one
    assert model.other is other
    assert (one.item(), other.item()) == (2.0, 1.0)


def test_a_buffer_of_two_names_is_left_as_it_was_assigned():
    model = nn.Module()
    model.register_buffer("one", torch.tensor([1.0]))
    model.register_buffer("other", model.one)
    assigned = torch.tensor([3.0])

    with keep_assigned_buffers(model):
        model.one = assigned

    assert model.one is assigned
