"""Batches of several shapes share one training over PopTorch's front end."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
}


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make_batches(sizes):
    torch.manual_seed(2)
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for size in sizes]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("most", [3, 2])
def test_alternating_shapes_train_like_plain(name, most):
    batches = make_batches([8, 8, 5, 8, 5, 7, 8, 7] if most == 3 else [8, 5, 8, 5, 5, 8])
    model, plain = make_net(), make_net()
    optimizers = [OPTIMIZERS[name](each.parameters()) for each in (model, plain)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    options = PortOptions(max_executables=most, frozen="allow")
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizers[0], options=options, device="ipu")
    bridge = ported.scheduler(schedules[0])
    losses, expected = [], []
    for x, y in batches:
        losses.append(float(ported(x, y)[1]))
        bridge.step()
        optimizers[1].zero_grad()
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        optimizers[1].step()
        schedules[1].step()
        expected.append(loss.item())

    assert losses == pytest.approx(expected, rel=1e-4)
    for key, tensor in plain.state_dict().items():
        assert torch.allclose(ported.state_dict()[key], tensor, rtol=1e-3, atol=1e-5), key
