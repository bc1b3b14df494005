"""Operators are called by torch's own bindings where those make exactly the same call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.replay import direct_calls
from porting.engines.replay.direct_calls import find_direct_call


class Body(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def calls_of(function, *example):
    """Map the name of each operator of `function` to the call that stands for it."""
    graph = capture_step(Body(function), example, mode="inference")
    return {operator.operator: find_direct_call(operator.node) for operator in graph.operators}


def test_an_operator_with_a_binding_is_called_by_it():
    call = calls_of(torch.relu, torch.ones(3))["aten.relu.default"]

    assert call.function is torch._C._VariableFunctions.relu


def test_a_method_serves_where_there_is_no_function():
    call = calls_of(lambda x: x.clone().fill_(1.0), torch.ones(3))["aten.fill_.Scalar"]

    assert call.function.__name__ == "fill_"


def test_an_operator_without_a_binding_is_called_by_its_overload():
    call = calls_of(lambda x: x[[0, 2]], torch.ones(3))["aten.index.Tensor"]

    assert call.function is torch.ops.aten.index.Tensor._op


def test_arguments_that_a_binding_would_read_otherwise_are_spelt_out():
    # the binding's own default for `reduction` is not that of the operator
    call = calls_of(F.cross_entropy, torch.ones(2, 3), torch.tensor([0, 1]))["aten.cross_entropy_loss.default"]

    assert call.args[2:] == (None, 1, -100, 0.0)


def test_operators_of_other_libraries_are_called_by_their_overload():
    library = torch.library.Library("porting_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    operator = torch.ops.porting_test.twice.default

    call = calls_of(operator, torch.ones(3))["porting_test.twice.default"]

    assert call.function is operator._op


def test_functions_that_are_no_operators_stay_as_they_are():
    graph = capture_step(Body(lambda x: x.max(0)), [torch.ones(3, 2)], mode="inference")
    unpacking = [node for node in graph.graph.nodes if node.name.startswith("getitem")]

    assert [find_direct_call(node).function for node in unpacking] == [node.target for node in unpacking]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(1, keepdim=True),
        lambda x: x.sum(dtype=torch.float32),
        lambda x: x.max(1),
        lambda x: x.to(torch.float16),
        lambda x: x.add(2, alpha=3),
        lambda x: x.view(4, 3).transpose(0, 1),
        lambda x: torch.cat([x, x], 1),
        lambda x: torch.where(x > 0, x, 1.0),
        lambda x: F.conv1d(x[None], x[:, None, :2].contiguous(), groups=1) if x.shape[0] == 1 else F.pad(x, (1, 1)),
        lambda x: F.layer_norm(x, (4,), eps=1e-3),
        lambda x: F.softmax(x, 1),
        lambda x: torch.linalg.vector_norm(x, dim=1),
        lambda x: torch.einsum("ij,kj->ik", x, x),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
        lambda x: torch.full((2, 3), 1.5, device="ipu") if x.device.type == "ipu" else torch.full((2, 3), 1.5),
    ],
)
def test_a_call_gives_what_its_operator_gives(function):
    x = torch.randn(3, 4)
    graph = capture_step(Body(function), [x], mode="inference")
    values = {graph.placeholders[0]: x}

    for node in graph.graph.nodes:
        if node.op == "call_function":
            call = find_direct_call(node)
            args, kwargs = torch.fx.node.map_arg((call.args, call.kwargs), values.get)
            values[node] = call.function(*args, **kwargs)

    results = [values[node] for node in graph.graph.output_node().args[0]]
    expected = torch.utils._pytree.tree_leaves(function(x))
    torch.testing.assert_close(results, expected, rtol=0, atol=0, check_dtype=False)


def test_a_binding_is_tried_out_once_for_each_kind_of_arguments(monkeypatch):
    tried = []
    original = direct_calls._is_same_call
    monkeypatch.setattr(direct_calls, "_chosen", {})
    monkeypatch.setattr(direct_calls, "_is_same_call", lambda call, node: tried.append(node) or original(call, node))

    calls_of(lambda x: x.transpose(0, 1).sum(0), torch.ones(2, 3))
    first = len(tried)
    calls_of(lambda x: x.transpose(1, 0).sum(1), torch.ones(4, 5))

    assert first > 0
    assert len(tried) == first


def test_a_number_is_not_taken_for_a_tensor_of_the_same_kind():
    calls = [calls_of(lambda x, y=y: x + y, torch.ones(2))["aten.add.Tensor"] for y in (2, 2.0, True)]

    assert [type(call.args[1]) for call in calls] == [int, float, bool]
