"""A loop on the host trains over PopTorch's front end as plain PyTorch does, with any loss and any optimizer."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import CaptureError

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def make_batches(sizes):
    torch.manual_seed(2)
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for size in sizes]


def train(model, call, batches, make_optimizer):
    optimizer = make_optimizer(model.parameters())
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        output = call(x)
        loss = F.cross_entropy(output, y) + 0.1 * output.abs().max()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_host_loop_trains_like_plain(name):
    model = make_net()
    plain, batches = copy.deepcopy(model), make_batches([6, 6, 6, 6])

    losses = train(model, to_ipu(model, loop="host", device="ipu"), batches, OPTIMIZERS[name])

    assert losses == pytest.approx(train(plain, plain, batches, OPTIMIZERS[name]), rel=1e-5)
    for key, tensor in plain.state_dict().items():
        assert torch.allclose(model.state_dict()[key], tensor, rtol=1e-4, atol=1e-6), key


def test_a_batch_gets_its_gradient():
    model = make_net()
    ported = to_ipu(model, loop="host", device="ipu")
    x, expected = torch.ones(2, 4, requires_grad=True), torch.ones(2, 4, requires_grad=True)

    ported(x).square().sum().backward()

    copy.deepcopy(model)(expected).square().sum().backward()
    assert torch.allclose(x.grad, expected.grad, rtol=1e-5)


def test_a_host_loop_takes_several_shapes():
    model = make_net()
    plain, batches = copy.deepcopy(model), make_batches([6, 4, 6, 4])

    ported = to_ipu(model, loop="host", device="ipu", options=PortOptions(max_executables=2))
    losses = train(model, ported, batches, OPTIMIZERS["Adam"])

    assert losses == pytest.approx(train(plain, plain, batches, OPTIMIZERS["Adam"]), rel=1e-5)


def test_evaluation_runs_on_the_device():
    model = make_net()
    ported = to_ipu(model, loop="host", device="ipu")
    x = torch.randn(5, 4)

    ported.eval()
    with torch.no_grad():
        output = ported(x)

    assert torch.allclose(output, model(x), rtol=1e-5)


def test_dropout_is_refused_with_the_reason():
    ported = to_ipu(nn.Sequential(make_net(), nn.Dropout(0.5)), loop="host", device="ipu")

    with pytest.raises(CaptureError, match="C021"):
        ported(torch.ones(2, 4))
