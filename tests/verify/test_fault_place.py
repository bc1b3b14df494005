"""The place of a fault: both trainings are brought to the step in which they part, and left as they were."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PlainTraining, PortedTraining, PortOptions
from porting.verify.fault_place import kept_port
from porting.verify.inputs import PortMaker

X, Y = torch.linspace(-1, 1, 24).view(4, 6), torch.tensor([0, 1, 2, 0])


def build():
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    return PlainTraining(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def port(model, **settings):
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **settings})
    options = PortOptions(keep_gradients=True)
    return porting.to_ipu(model, F.cross_entropy, optimizer=optimizer, options=options, device="sim")


def test_a_port_of_the_users_is_brought_back():
    training = build()
    ported = port(copy.deepcopy(training.model))
    before = copy.deepcopy(ported.model.state_dict())

    with kept_port(PortMaker(training, ported, None, "sim"), PortedTraining(ported)):
        ported(X, Y)

    assert all(torch.equal(before[name], value) for name, value in ported.model.state_dict().items())


def test_a_port_that_was_made_for_the_proof_is_let_go_of():
    training = build()
    maker = PortMaker(training, None, None, "sim")
    made = maker.make()
    made.model(X, Y)

    with kept_port(maker, made):
        pass

    assert made.model.device_executor is None


def test_a_fault_is_located_in_the_step_where_it_begins():
    def loop(ported, *args):
        calls.append(args)
        if len(calls) == 3:
            ported.port_optimizer.require_users().param_groups[0]["momentum"] = 0.5
        return ported(*args)

    calls = []
    certificate = porting.verify(
        build(), batches=(X, Y), steps=5, ported=lambda model: PortedTraining(port(model), call=loop)
    )

    assert certificate.verdict.value == "FAIL"
    assert certificate.location.step == 3
    assert "momentum" in certificate.location.cause
