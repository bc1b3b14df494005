"""Outputs that no input, weight or random number has a part in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.constant_outputs import constant_outputs


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
