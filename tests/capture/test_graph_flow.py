"""What depends on inputs, weights and random numbers, and where gradients flow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.graph_flow import ValueFlow, constant_outputs, is_random, output_nodes


class Body(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        return self.function(self, x)


def constants_of(function):
    return constant_outputs(capture_step(Body(function), [torch.ones(2)], mode="inference"))


def filled_with_the_input(_module, x):
    result = torch.zeros(2, device=x.device)
    result.copy_(x)
    return result


def view_of_what_the_input_fills(_module, x):
    result = torch.zeros(2, device=x.device)
    view = result[:1]
    result += x
    return view


@pytest.mark.parametrize(
    "function",
    [
        lambda module, x: torch.ones(2, device=x.device),
        lambda module, x: torch.ones(2, device=x.device) * 3 + 1,
        lambda module, x: torch.zeros(2, device=x.device).add_(1),
        lambda module, x: torch.tensor([1.0, 2.0], device=x.device),
        lambda module, x: torch.arange(4, device=x.device).chunk(2)[1],
    ],
    ids=["factory", "arithmetic", "in place", "host tensor", "one of several results"],
)
def test_what_is_made_of_constants_is_constant(function):
    assert constants_of(function) == {0}


def part_of_what_is_random(_module, x):
    return torch.rand(2, device=x.device).chunk(2)[0]


@pytest.mark.parametrize(
    "function",
    [
        part_of_what_is_random,
        lambda module, x: x,
        lambda module, x: x.chunk(2)[0],
        lambda module, x: torch.ones(2, device=x.device) + x,
        lambda module, x: module.weight,
        lambda module, x: module.total,
        lambda module, x: torch.rand(2, device=x.device),
        filled_with_the_input,
        view_of_what_the_input_fills,
    ],
    ids=[
        "part of random",
        "input",
        "part",
        "sum",
        "parameter",
        "buffer",
        "random",
        "written",
        "view of what is written",
    ],
)
def test_what_may_change_is_not(function):
    assert constants_of(function) == frozenset()


def test_each_output_is_judged_by_itself():
    assert constants_of(lambda module, x: (x, torch.ones(1, device=x.device), [module.weight])) == {1}


# -- gradients


class Trained(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.function(self.weight, x)


def detached(weight, x):
    return (weight * x).detach() + x


def without_gradients(weight, x):
    with torch.no_grad():
        return weight * x


def written_to_a_view(weight, x):
    result = torch.zeros(2, device=x.device)
    result[:1].copy_(weight[:1] * x[:1])
    return result


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda weight, x: weight * x, True),
        (written_to_a_view, True),
        (lambda weight, x: x * 2, False),
        (detached, False),
        (without_gradients, False),
        (lambda weight, x: (weight * x > 0).to(x.dtype), False),
        (lambda weight, x: x + (weight * x).argmax(), False),
        (lambda weight, x: x + torch.zeros_like(weight * x), False),
        (lambda weight, x: x + weight.new_ones(2), False),
        (lambda weight, x: torch.max(weight * x, 0, keepdim=True)[0] + x, True),
    ],
    ids=(
        "product",
        "written to a view",
        "without weights",
        "detached",
        "no_grad",
        "truth values",
        "an index",
        "zeros of a shape",
        "new ones",
        "a maximum with its index",
    ),
)
def test_gradients_flow_where_autograd_tracks(function, expected):
    graph = capture_step(Trained(function), [torch.ones(2), torch.ones(2)], loss=nn.functional.l1_loss)

    result = output_nodes(graph.graph)[0]

    assert ValueFlow.follow(graph).has_gradient(result) == expected


def test_inference_tracks_nothing():
    graph = capture_step(Trained(lambda weight, x: weight * x), [torch.ones(2)], mode="inference")

    assert not ValueFlow.follow(graph).with_gradient


def test_a_loop_that_draws_random_numbers_is_random(poptorch):
    class Looped(nn.Module):
        def forward(self, x):
            start = torch.zeros(2, device=x.device)
            return poptorch.for_loop(3, lambda y: y + torch.rand_like(y), [start])[0]

    graph = capture_step(Looped(), [torch.ones(2)], mode="inference")
    (result,) = output_nodes(graph.graph)

    assert any(is_random(node) for node in graph.graph.nodes)
    assert not ValueFlow.follow(graph).is_constant(result)
