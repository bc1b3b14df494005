"""What the device demands of arguments is said in PopTorch's words; what it takes passes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from porting.analysis.operator_limits import LIMITS, OperatorCall


def limit(name, *, constants=False, needs_gradient=False, values=(), **arguments):
    """Return what the rule says of a call of `name`; `values` are tensor arguments by name."""
    graph = fx.Graph()
    for key, value in dict(values).items():
        arguments[key] = graph.placeholder(key)
        arguments[key].meta["val"] = value
    node = graph.call_function(F.relu, tuple(arg for arg in arguments.values() if isinstance(arg, fx.Node)))
    return LIMITS[name](OperatorCall(node, name, arguments, lambda _node: constants, needs_gradient))


RECURRENT = {"num_layers": 1, "bidirectional": False, "has_biases": True, "dropout": 0.0}


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh"])
def test_a_plain_recurrent_layer_passes(name):
    assert limit(name, **RECURRENT) is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("lstm", {"num_layers": 2}, "Only LSTM with 1 layer is supported"),
        ("rnn_relu", {"bidirectional": True}, "Bidirectional RNN is not supported"),
        ("gru", {"bidirectional": True}, "bidirectional GRU not supported"),
        ("lstm", {"has_biases": False}, "LSTM without biases not supported"),
        ("gru", {"has_biases": False}, None),
        ("gru", {"dropout": 0.5}, "GRU only supports dropout = 0.0"),
    ],
)
def test_a_recurrent_layer_of_another_kind_is_refused(name, change, message):
    assert limit(name, **{**RECURRENT, **change}) == message


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (None, None),
        ([2.0, 2.0], None),
        ([1.5, 1.5], "Bilinear upsampling with non-integer factor"),
        ([2.0, 3.0], "Non-uniform"),
    ],
)
def test_bilinear_factors_are_whole_and_the_same(factors, message):
    said = limit("upsample_bilinear2d", scale_factors=factors)

    assert said is None if message is None else message in said


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_that_has_no_gradient_is_for_inference(mode):
    assert limit("pad", mode=mode, pad=[1, 1]) is None
    assert "only supported in inference" in limit("pad", mode=mode, pad=[1, 1], needs_gradient=True)
    assert limit("pad", mode="constant", pad=[1, 1], needs_gradient=True) is None


def test_bits_of_floats_and_of_bytes_are_refused():
    assert limit("bitwise_xor", values={"self": torch.ones(2, dtype=torch.int32)}) is None
    assert "8-bit" in limit("bitwise_xor", values={"self": torch.ones(2, dtype=torch.uint8)})
    assert limit("bitwise_xor", values={"self": torch.ones(2)}).startswith("Bitwise-xor")


def test_a_triangle_is_for_constants():
    assert limit("triu", constants=True) is None
    assert "constant expressions" in limit("triu")
