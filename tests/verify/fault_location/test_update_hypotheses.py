"""What makes of one update another is told from the numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting.verify.fault_location.update_hypotheses import UpdateCase, explain_update


def make_case(make_optimizer, change, *, steps=3):
    """Return the case of the last of `steps`, which `change` makes of the model and the optimizer before it."""
    torch.manual_seed(0)
    model = nn.Linear(5, 4)
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps - 1):
        model(torch.randn(6, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model(torch.randn(6, 5)).square().sum().backward()
    names = {parameter: name for name, parameter in model.named_parameters()}
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    slots = {names[p]: {k: v.clone() for k, v in own.items() if v is not None} for p, own in optimizer.state.items()}
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    pair = copy.deepcopy((model, optimizer))
    for name, parameter in pair[0].named_parameters():
        parameter.grad = gradients[name].clone()
    optimizer.step()
    plain = {name: parameter.detach() - weights[name] for name, parameter in model.named_parameters()}
    change(*pair)
    ported = {name: parameter.detach() - weights[name] for name, parameter in pair[0].named_parameters()}
    return UpdateCase(["weight", "bias"], plain, ported, weights, gradients, slots, optimizer, [["weight", "bias"]])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def step_with(**settings):
    def change(_model, optimizer):
        optimizer.param_groups[0].update(settings)
        optimizer.step()

    return change


def late_momentum(model, optimizer):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.01 * optimizer.state[parameter]["momentum_buffer"])


def lost_state(_model, optimizer):
    optimizer.state.clear()
    optimizer.step()


def early_step(_model, optimizer):
    for state in optimizer.state.values():
        state["step"] += 1
    optimizer.step()


@pytest.mark.parametrize(
    ("make_optimizer", "change", "words"),
    [
        (sgd, step_with(momentum=0.8), "with momentum 0.8"),
        (sgd, step_with(weight_decay=0.0), "without weight decay"),
        (sgd, step_with(nesterov=True), "with Nesterov's momentum"),
        (sgd, step_with(lr=0.02), "2 times plain PyTorch's"),
        (sgd, step_with(lr=-0.01), "the other way"),
        (sgd, step_with(weight_decay=0.37), "a weight decay of 0.27 more"),
        (sgd, late_momentum, "off by one step"),
        (sgd, lost_state, "lost"),
        (sgd, lambda _model, _optimizer: None, "does not update any parameter"),
        (adam, early_step, "count of steps is one ahead"),
        (adam, step_with(betas=(0.8, 0.999)), "betas[0] 0.8"),
        (adam, step_with(betas=(0.9, 0.99)), "betas[1] 0.99"),
    ],
)
def test_a_changed_update_is_explained(make_optimizer, change, words):
    assert words in explain_update(make_case(make_optimizer, change))


def test_an_update_that_nothing_explains_is_left_open():
    def change(model, _optimizer):
        with torch.no_grad():
            model.weight.add_(torch.randn(4, 5))
            model.bias.add_(torch.randn(4))

    assert explain_update(make_case(sgd, change)) is None
