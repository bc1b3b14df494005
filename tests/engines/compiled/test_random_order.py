"""Random numbers stay at their elements when a compiler lays out tensors as it likes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.random_order import declare_random_order

DRAWN = {
    "dropout": lambda x: F.dropout(x, 0.5, training=True),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "read beside": lambda x: (noise := torch.empty_like(x), noise.uniform_(), noise + noise.t())[2],
}
# torch draws normal numbers in pairs where the memory is contiguous, and one by one elsewhere
DRAWN_OTHERWISE = {
    "normal_": lambda x: torch.empty_like(x).normal_() * x,
    "randn_like": lambda x: x * torch.randn_like(x),
}


def order_of_draws(module):
    """Return whether each tensor that random numbers are drawn into is contiguous."""
    words = ("rand", "bernoulli", "normal", "uniform", "exponential")
    drawn = [node for node in module.graph.nodes if any(word in str(node.target) for word in words)]
    return [node.meta["val"].is_contiguous() for node in drawn]


@pytest.mark.parametrize("function", DRAWN.values(), ids=DRAWN.keys())
@pytest.mark.parametrize("turned", [False, True])
def test_the_same_numbers_are_drawn_into_contiguous_memory(function, turned):
    x = torch.ones(5, 5).t() if turned else torch.ones(5, 5)
    module = make_fx(function)(x)

    declare_random_order(module.graph)
    module.graph.lint()
    module.recompile()

    assert order_of_draws(module)
    assert all(order_of_draws(module))
    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    assert torch.equal(module(x), expected)


@pytest.mark.parametrize("function", DRAWN_OTHERWISE.values(), ids=DRAWN_OTHERWISE.keys())
def test_numbers_that_would_be_others_stay_as_they_are(function):
    x = torch.ones(5, 5).t()
    module = make_fx(function)(x)

    declare_random_order(module.graph)
    module.recompile()

    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    assert torch.equal(module(x), expected)


def test_trying_out_leaves_the_random_stream_alone():
    module = make_fx(DRAWN["dropout"])(torch.ones(5, 5).t())
    before = torch.get_rng_state()

    declare_random_order(module.graph)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("strides", [(60, 1, 12, 3), (1, 2, 6, 24)])
def test_any_order_of_dimensions_is_said(strides):
    x = torch.empty_strided((2, 3, 4, 5), strides).fill_(1.0)
    module = make_fx(DRAWN["dropout"])(x)

    declare_random_order(module.graph)
    module.recompile()

    torch.manual_seed(3)
    expected = DRAWN["dropout"](x)
    torch.manual_seed(3)
    assert torch.equal(module(x), expected)


def test_tensors_in_the_usual_order_are_left_alone():
    module = make_fx(DRAWN["dropout"])(torch.ones(3, 4))
    before = str(module.graph)

    declare_random_order(module.graph)

    assert str(module.graph) == before


def test_numbers_that_depend_on_values_stay_with_them():
    module = make_fx(lambda p: torch.empty_like(p).bernoulli_(p))(torch.full((3, 3), 0.5).t())
    before = str(module.graph)

    declare_random_order(module.graph)

    assert str(module.graph) == before
