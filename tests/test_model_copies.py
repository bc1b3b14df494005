"""A copied model shares nothing with the original: neither weights nor what functions in its attributes run."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from porting.model_copies import copy_model, copy_together, keep_buffers


class WithFunction(nn.Module):
    """Keeps its layers in a function, as minGPT's blocks do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
        layers = self.layers

        def run(x):
            return layers["second"](layers["first"](x))

        self.run = lambda x: run(x)

    def forward(self, x):
        return self.run(x)


def list_trained(model):
    return [name for name, parameter in model.named_parameters() if parameter.grad is not None]


@pytest.mark.parametrize("make_copy", [copy_model, lambda model: copy_together(model)[0]])
def test_functions_in_attributes_run_the_layers_of_the_copy(make_copy):
    model = WithFunction()

    copied = make_copy(model)
    copied(torch.ones(1, 2)).sum().backward()

    assert len(list_trained(copied)) == 4
    assert list_trained(model) == []


def test_hooks_write_to_the_copy():
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda _module, _args, output: setattr(model, "kept", output))

    (copied,) = copy_together(model)
    copied(torch.ones(1, 2))

    assert hasattr(copied, "kept")
    assert not hasattr(model, "kept")


def test_a_loss_with_a_penalty_looks_at_the_copy():
    model = nn.Linear(2, 2)

    copied, loss = copy_together(model, lambda output: output.sum() + sum(p.sum() for p in model.parameters()))
    loss(torch.zeros(1)).backward()

    assert list_trained(copied) == ["weight", "bias"]
    assert list_trained(model) == []


def test_a_function_without_the_model_stays_the_users():
    model = nn.Identity()
    model.function = lambda x: x

    (copied,) = copy_together(model)

    assert copied.function is model.function


def test_what_cannot_be_copied_is_the_copys_as_well():
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()

    assert copy_model(model).lock is model.lock


def test_a_copy_has_the_values_of_computed_tensors_and_parameters_of_its_own():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].kept = {"all": [model[0].weight * 2, model[0].weight]}

    (copied,) = copy_together(model)

    computed, parameter = copied[1].kept["all"]
    assert torch.equal(computed, model[0].weight * 2)
    assert computed.is_leaf
    assert parameter is copied[0].weight
    assert parameter is not model[0].weight


def test_buffers_have_their_values_again_after_a_run():
    model = nn.BatchNorm1d(2)

    with keep_buffers(model) as before:
        model(torch.randn(4, 2))
        has_changed = not torch.equal(before["running_mean"], model.running_mean)

    assert has_changed
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_a_module_that_is_left_out_is_none_of_the_copy():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))

    copied = copy_model(model, without=[model[1]])

    assert [type(layer) for layer in copied] == [nn.Linear, nn.Identity]
    assert type(model[1]) is nn.Linear
