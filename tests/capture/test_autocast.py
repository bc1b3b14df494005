"""A capture under autocast: the casts that torch would make are in the graph, and inner regions switch them off."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import CaptureError

BF16, SINGLE = torch.bfloat16, torch.float32
X = torch.randn(3, 4)


@pytest.fixture
def types(trace):
    """Give a function that names the types of what `function(weight, *args)` returns under autocast."""

    def types(function, *args):
        return [info.dtype for info in trace(function, *args, autocast=BF16).outputs]

    return types


PRODUCTS = {
    "linear": lambda w, x: F.linear(x, w),
    "matmul": lambda w, x: x @ w.t(),
    "einsum": lambda w, x: torch.einsum("ij,kj->ik", x, w),
    "convolution": lambda w, x: F.conv1d(x.unsqueeze(1), w.unsqueeze(1)),
    "attention": lambda w, x: F.scaled_dot_product_attention(x, w, w),
    "product with a vector": lambda w, x: x.mv(w[0]),
}


@pytest.mark.parametrize("function", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_products_are_computed_in_bfloat16(types, function):
    assert types(function, X) == [BF16]


CAUTIOUS = {
    "softmax": lambda h: h.softmax(-1),
    "exponential": lambda h: h.exp(),
    "exponential in place": lambda h: h.clone().exp_() + h.float() * 0,
    "sum": lambda h: h.sum(),
    "variance": lambda h: h.var(),
    "norm": lambda h: h.norm(),
    "squared error": lambda h: F.mse_loss(h, torch.zeros_like(h)),
    "recurrent layer": lambda h: torch.lstm_cell(h, [h, h], h.new_ones(20, 5), h.new_ones(20, 5))[1],
}


@pytest.mark.parametrize("function", CAUTIOUS.values(), ids=CAUTIOUS.keys())
def test_what_loses_too_much_is_computed_in_single_precision(types, function):
    assert types(lambda w, x: function(F.linear(x, w)), X) == [SINGLE]


PASSED_ON = {
    "relu": F.relu,
    "sum of two": lambda h: h + h,
    "view": lambda h: h.t().reshape(-1),
    "batch norm": lambda h: F.batch_norm(h, h.new_zeros(5).float(), h.new_ones(5).float(), training=True),
    "layer norm": lambda h: F.layer_norm(h, (5,), torch.ones(5, device=h.device)),
    "a type that forward asks for": lambda h: torch.zeros(2, dtype=h.dtype, device=h.device),
    "a cast that forward asks for": lambda h: h.float().bfloat16(),
}


@pytest.mark.parametrize("function", PASSED_ON.values(), ids=PASSED_ON.keys())
def test_other_operators_take_what_comes(types, function):
    assert types(lambda w, x: function(F.linear(x, w)), X) == [BF16]


@pytest.mark.parametrize("name", ["cpu", "of the tensor"])
def test_forward_may_switch_autocast_off(types, name):
    def function(w, x):
        with torch.autocast(x.device.type if name == "of the tensor" else name, enabled=False):
            return F.linear(x, w)

    assert types(function, X) == [SINGLE]


def test_forward_may_not_ask_for_another_type(refusal):
    def function(w, x):
        with torch.autocast("cpu", dtype=torch.float16):
            return F.linear(x, w)

    assert refusal(function, X, autocast=BF16).code == "P001"


def test_forward_may_ask_for_the_same_type(types):
    def function(w, x):
        with torch.autocast("cpu", dtype=BF16):
            return F.linear(x, w)

    assert types(function, X) == [BF16]


def test_forward_sees_that_autocast_is_on(trace):
    seen = []

    trace(
        lambda w, x: seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))), X, autocast=BF16
    )

    assert seen == [(True, BF16)]


def test_inputs_and_weights_that_are_bfloat16_enter_as_single_precision():
    graph = capture_step(nn.Linear(4, 2).bfloat16(), [X.bfloat16()], mode="inference", autocast=BF16)

    assert {info.dtype for info in (*graph.inputs, *graph.parameters)} == {SINGLE}
    assert [info.dtype for info in graph.outputs] == [BF16]


def test_without_it_bfloat16_is_single_precision(trace):
    graph = trace(lambda w, x: F.linear(x, w).bfloat16(), X)

    assert [info.dtype for info in graph.outputs] == [SINGLE]


def failing(_weight, _x):
    raise KeyError("of the user's")


@pytest.mark.parametrize("function", [lambda w, x: F.linear(x, w), failing], ids=["a good one", "a failing one"])
def test_a_capture_leaves_autocast_as_it_was(trace, function):
    with torch.autocast("cpu", dtype=torch.float16):
        try:
            trace(function, X, autocast=BF16)
        except KeyError:
            pass
        inside = (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))

    assert inside == (True, torch.float16)
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("ipu")


def test_a_host_s_autocast_is_still_refused_without_it(trace):
    def function(w, x):
        with torch.autocast("cpu", dtype=BF16):
            return F.linear(x, w)

    with pytest.raises(CaptureError, match="`torch.autocast` is active"):
        trace(function, X)
