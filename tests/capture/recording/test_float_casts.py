"""A weight is cast once for all its uses, as long as nothing writes to it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step

BF16, SINGLE = torch.bfloat16, torch.float32


X = torch.randn(3, 4)


@pytest.fixture
def types(trace):
    """Give a function that names the types of what `function(weight, *args)` returns under autocast."""

    def types(function, *args):
        return [info.dtype for info in trace(function, *args, autocast=BF16).outputs]

    return types


def casts(graph):
    return [op for op in graph.operators if op.operator == "aten.to.dtype" and BF16 in op.dtypes]


def test_mixed_operands_are_promoted(types):
    assert types(lambda w, x: (F.linear(x, w) + w[:, 0], torch.cat([F.linear(x, w), x], 1)), X) == [SINGLE] * 2


def test_operators_that_refuse_mixed_types_get_single_precision(types):
    assert types(lambda w, x: torch.lerp(F.linear(x, w), w[:3, :1], 0.5), X) == [SINGLE]


def test_a_weight_that_is_used_twice_is_cast_once(trace):
    graph = trace(lambda w, x: F.linear(F.linear(x, w), w.t()), X, autocast=BF16)

    assert len(casts(graph)) == 3  # the input, the weight and the view of it


def test_a_cast_without_gradient_is_not_used_where_one_flows():
    class Twice(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                before = super().forward(x)
            return F.mse_loss(super().forward(x), before)

    graph = capture_step(Twice(4, 2), [X], autocast=BF16)

    assert graph.loss_has_gradient
    assert len([op for op in casts(graph) if op.shapes == ((2, 4),)]) == 2


def test_a_weight_that_was_written_to_is_cast_again(trace):
    def function(w, x):
        before = F.linear(x, w)
        with torch.no_grad():
            w.mul_(2)
        return before, F.linear(x, w)

    assert len([op for op in casts(trace(function, X, autocast=BF16)) if op.shapes == ((5, 4),)]) == 2
