"""Hooks of the backward pass, which no device calls, are refused before a step is compiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from porting import to_ipu
from porting.diagnostics import CaptureError


def times_five(_module, gradients, *_others):
    return tuple(None if gradient is None else gradient * 5 for gradient in gradients)


class Net(nn.Module):
    def __init__(self, during=None):
        super().__init__()
        self.first, self.last, self.during = nn.Linear(4, 8), nn.Linear(8, 3), during

    def forward(self, x):
        h = self.first(x)
        if self.during is not None:
            self.during(self, h)
        return self.last(h)


def call(model, loss=None):
    ported = to_ipu(model, loss or nn.CrossEntropyLoss(), device="sim")
    ported(torch.rand(6, 4), torch.randint(3, (6,)))


def refusal_of(model, loss=None):
    with pytest.raises(CaptureError) as caught:
        call(model, loss)
    assert caught.value.code == "C007"
    return str(caught.value)


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_full_backward_hook(times_five),
        lambda module: module.register_full_backward_pre_hook(times_five),
        lambda module: module.register_backward_hook(times_five),
    ],
    ids=["full", "before", "old"],
)
def test_a_backward_hook_of_a_module_is_refused_by_the_modules_name(register):
    model = Net()
    register(model.first)

    assert "the module `first` (Linear) has a backward hook" in refusal_of(model)


def test_a_backward_hook_of_the_model_itself_is_refused():
    model = Net()
    model.register_full_backward_hook(times_five)

    assert "`Net`" in refusal_of(model)


def test_a_backward_hook_of_the_loss_is_refused():
    loss = nn.CrossEntropyLoss()
    loss.register_full_backward_hook(times_five)

    assert "the module `loss` (CrossEntropyLoss)" in refusal_of(Net(), loss)


@pytest.mark.parametrize("name", ["register_module_full_backward_hook", "register_module_full_backward_pre_hook"])
def test_a_backward_hook_of_all_modules_is_refused(name):
    hook = getattr(module_hooks, name)(times_five)
    try:
        assert "all modules have a backward hook" in refusal_of(Net())
    finally:
        hook.remove()


def test_a_hook_of_a_tensor_in_forward_is_refused_with_its_line():
    def register(_net, h):
        h.register_hook(lambda gradient: gradient * 5)  # registered here

    assert "# registered here" in refusal_of(Net(register))


def test_a_forward_hook_that_hooks_the_gradient_is_refused_with_its_line():
    model = Net()
    model.first.register_forward_hook(lambda _module, _args, h: h.register_hook(lambda g: g * 5) and None)  # here

    assert "# here" in refusal_of(model)


def test_a_hook_that_forward_registers_on_a_module_is_refused():
    assert "`last`" in refusal_of(Net(lambda net, _h: net.last.register_full_backward_hook(times_five)))


def test_a_refused_hook_leaves_a_plain_model_that_can_be_ported_without_it():
    model = Net()
    hook = model.first.register_full_backward_hook(times_five)
    refusal_of(model)
    hook.remove()

    call(model)

    assert type(model.first.weight).__name__ == "Parameter"


def test_forward_hooks_that_observe_or_compute_are_fine():
    model = Net()
    seen = []
    model.first.register_forward_pre_hook(lambda _module, args: seen.append("before") or (args[0] * 2,))
    model.first.register_forward_hook(lambda _module, _args, h: seen.append("after") or h * 3)

    call(model)

    # a second capture looks for what Python decides, and runs `forward` with its hooks again
    assert seen == ["before", "after"] * 2


def test_inference_calls_no_hooks_and_refuses_none():
    model = Net(lambda _net, h: h.requires_grad and h.register_hook(lambda gradient: gradient))
    model.first.register_full_backward_hook(times_five)

    scores = to_ipu(model, nn.CrossEntropyLoss(), device="sim").inference()(torch.rand(6, 4))

    assert scores.shape == (6, 3)
