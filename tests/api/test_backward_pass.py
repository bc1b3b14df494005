"""The backward pass on the device: gradients are those of eager PyTorch, and None where eager has none."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from porting import PortOptions
from tests.api.test_host_loop import assert_same_gradients, port, train_on_host

X = torch.rand(5, 4)


# -- parameters that a loss does not depend on


class Branches(nn.Module):
    """A part of what it has is used in a way through which no gradient flows, or not at all."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.used, self.other, self.unused = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x, other=None):
        return self.function(self, x, other)


WITHOUT_GRADIENT = {
    "unused": lambda model, x, _other: model.used(x),
    "detached": lambda model, x, _other: model.used(x) + model.other(x).detach(),
    "compared": lambda model, x, _other: model.used(x) * (model.other(x) > 0),
    "an index": lambda model, x, _other: model.used(x) + model.other(x).argmax(1, keepdim=True),
    "a shape": lambda model, x, _other: model.used(x) + torch.zeros_like(model.other(x)),
    "a branch": lambda model, x, other: model.used(x) if other is None else model.other(other),
}


@pytest.mark.parametrize("function", WITHOUT_GRADIENT.values(), ids=WITHOUT_GRADIENT)
def test_what_eager_gives_no_gradient_gets_none_so_that_no_optimizer_moves_it(function):
    model, eager = Branches(function), Branches(function)

    for trained, call in ((model, port(model)), (eager, eager)):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        for _step in range(3):
            optimizer.zero_grad()
            call(X).square().sum().backward()
            optimizer.step()

    assert_same_gradients(model, eager)
    assert_same_state(model, eager)


def assert_same_state(model, eager):
    for name, tensor in eager.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_branch_that_a_call_does_not_use_has_no_gradient_of_that_call():
    function = WITHOUT_GRADIENT["a branch"]
    model, eager = Branches(function), Branches(function)
    ported = port(model, options=PortOptions(max_executables=2))

    for trained, call in ((model, ported), (eager, eager)):
        call(X, other=X).sum().backward()
        trained.zero_grad()
        call(X).sum().backward()

    assert model.other.weight.grad is None
    assert_same_gradients(model, eager)


# -- weights that hooks compute


def normalise_weight(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


COMPUTED = {
    "weight norm": normalise_weight,
    "weight norm by parametrization": nn.utils.parametrizations.weight_norm
    if hasattr(nn.utils.parametrizations, "weight_norm")
    else nn.utils.parametrizations.orthogonal,
    "spectral norm": nn.utils.spectral_norm,
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", amount=5),
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_weights_that_hooks_compute_train_as_in_eager(compute, batches):
    models = []
    for _model in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(compute(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 3)))
    model, eager = models

    losses = train_on_host(model, port(model), batches)

    assert losses == train_on_host(eager, eager, batches)
    assert_same_state(model, eager)


def test_an_attribute_that_cannot_be_copied_hinders_no_backward_pass(batches):
    models = []
    for _model in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)))
        models[-1][0].lock, models[-1].settings = threading.Lock(), {"file": sys.stdout}
    model, eager = models

    losses = train_on_host(model, port(model), batches)

    assert losses == train_on_host(eager, eager, batches)
