"""An optimizer of the backend's own steps on the host and on the device in turns, with one state."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting.simulator as poptorch
from porting import to_ipu

SETTINGS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01},
}


def make_batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)


def step_on_host(model, optimizer, number):
    x, y = make_batch(number)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("ends", ["kept", "destroyed", "ported again"])
@pytest.mark.parametrize("kind", SETTINGS)
def test_steps_on_host_and_device_in_turns_are_those_of_eager(kind, ends):
    model = nn.Linear(4, 3)
    plain = copy.deepcopy(model)
    ours = getattr(poptorch.optim, kind)(model.parameters(), **SETTINGS[kind])
    theirs = getattr(torch.optim, kind)(plain.parameters(), **SETTINGS[kind])
    ported, losses = None, []

    for turn in range(3):
        if ported is None or ends == "ported again":
            ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=ours, device="sim")
        losses += [ported(*make_batch(number))[1].item() for number in (turn, turn + 1)]
        if ends != "kept":
            ported.destroy()
        losses += [step_on_host(model, ours, number) for number in (turn + 2, turn + 3)]

    assert losses == pytest.approx([step_on_host(plain, theirs, t + n) for t in range(3) for n in range(4)], rel=1e-4)


def test_a_step_that_is_left_over_in_a_ports_loop_fetches_nothing():
    model = nn.Linear(4, 3)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
    ported(*make_batch(0))

    optimizer.step()

    assert len(optimizer.state) == 0
