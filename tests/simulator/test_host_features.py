"""What the host's autograd and autocast are told in `forward` has no effect on the device, which says so."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import porting.simulator as simulator


class Tripled(torch.autograd.Function):
    """A function whose own backward is far from the derivative of its forward."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1000, None


class TripledTheNewWay(torch.autograd.Function):
    """The same with a context of its own."""

    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1000, None


class Weighted(nn.Module):
    """`function` of a trained weight times the input, summed up as loss."""

    def __init__(self, poptorch, function):
        super().__init__()
        self.poptorch = poptorch
        self.function = function
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x):
        y = self.function(self.weight * x)
        return y, self.poptorch.identity_loss(y, "sum")


def trained(poptorch, function):
    model = Weighted(poptorch, function)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    output, _loss = executor(torch.tensor([3.0, 5.0]))
    executor.copyWeightsToHost()
    return output, model.weight.detach().clone()


def with_hooks(x):
    x.register_hook(lambda gradient: gradient * 0)
    x.retain_grad()
    return x * 3


def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x.unsqueeze(1) @ torch.full((1, 1), 3.0)).squeeze(1)


@pytest.mark.parametrize(
    "function",
    [lambda x: Tripled.apply(x, 3.0), lambda x: TripledTheNewWay.apply(x, 3.0), with_hooks, under_autocast],
    ids=["a custom function", "one of the new kind", "hooks of tensors", "autocast"],
)
def test_the_device_differentiates_what_forward_does(poptorch, function):
    output, weight = trained(poptorch, function)

    assert torch.equal(output, torch.tensor([9.0, 30.0]))
    assert torch.allclose(weight, torch.tensor([1.0 - 0.1 * 9, 2.0 - 0.1 * 15]))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: Tripled.apply(x, 3.0), "`Tripled` is a custom autograd function"),
        (with_hooks, "`Tensor.register_hook` is called inside `forward`"),
        (under_autocast, "`torch.autocast` is active"),
    ],
)
def test_what_is_ignored_is_said_once(caplog, function, words):
    trained(simulator, lambda x: function(function(x) / 3))

    assert caplog.text.count(words) == 1


def test_a_custom_function_is_itself_again_after_compiling(poptorch):
    trained(poptorch, lambda x: Tripled.apply(x, 3.0))
    on_host = torch.ones(2, requires_grad=True)

    Tripled.apply(on_host, 3.0).sum().backward()

    assert on_host.grad.tolist() == [1000.0, 1000.0]


def test_backward_hooks_of_modules_and_parameters_are_not_called(poptorch):
    plain = nn.Linear(2, 2)
    hooked, calls = copy.deepcopy(plain), []
    hooked.register_full_backward_hook(lambda *_args: calls.append("module"))
    hooked.register_full_backward_pre_hook(lambda *_args: calls.append("module, before"))
    hooked.weight.register_hook(lambda _gradient: calls.append("parameter"))
    weights = []
    for layer in (plain, hooked):
        model = Weighted(poptorch, layer)
        model.layer = layer
        executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
        executor(torch.tensor([3.0, 5.0]))
        executor.copyWeightsToHost()
        weights.append(layer.weight.detach().clone())

    assert torch.equal(weights[0], weights[1])
    assert calls == []


def test_autocast_switched_off_for_the_device_of_a_tensor_changes_nothing(poptorch):
    def forward(x):
        with torch.autocast(device_type=x.device.type, enabled=False):
            return x.float() * 3

    output, _weight = trained(poptorch, forward)

    assert torch.equal(output, torch.tensor([9.0, 30.0]))


@pytest.mark.parametrize(
    "differentiate", [lambda x: torch.autograd.grad(x.sum(), x)[0], lambda x: (x.sum().backward(), x)[1]]
)
def test_differentiating_inside_forward_is_an_error(poptorch, differentiate):
    with pytest.raises(poptorch.Error):
        trained(poptorch, differentiate)
