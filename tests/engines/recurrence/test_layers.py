"""Recurrent layers by loops of ours compute what torch's do: outputs, states, and every gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.engines.recurrence.layers import make_operator

aten = torch.ops.aten

KINDS = {
    "lstm": (nn.LSTM, aten.lstm.input, {}),
    "gru": (nn.GRU, aten.gru.input, {}),
    "tanh": (nn.RNN, aten.rnn_tanh.input, {"nonlinearity": "tanh"}),
    "relu": (nn.RNN, aten.rnn_relu.input, {"nonlinearity": "relu"}),
}

kinds = pytest.mark.parametrize("kind", KINDS)


def make_layer(kind, num_inputs, num_units, **settings):
    torch.manual_seed(0)
    module, operator, own = KINDS[kind]
    return module(num_inputs, num_units, **own, **settings), operator


def make_states(layer, num_rows, kind):
    num_layers = layer.num_layers * (2 if layer.bidirectional else 1)
    states = [torch.randn(num_layers, num_rows, layer.hidden_size) for _ in range(2 if kind == "lstm" else 1)]
    return states if kind == "lstm" else states[0]


def run_ours(kernels, operator, layer, x, states):
    settings = (layer.bias, layer.num_layers, layer.dropout, layer.training, layer.bidirectional, layer.batch_first)
    return make_operator(operator, kernels)(x, states, list(layer.parameters()), *settings)


def flatten(results):
    return [results[0], *(results[1] if isinstance(results[1], tuple) else results[1:])]


def compare(kernels, kind, layer, operator, x, *, tolerance=1e-5):
    """Run the layer by both, weigh all results at random, and compare results and gradients."""
    states = make_states(layer, x.shape[0 if layer.batch_first else 1], kind)
    sides = []
    for run in (lambda layer, x, h: layer(x, tuple(h) if kind == "lstm" else h), None):
        own, own_x, own_states = copy.deepcopy(layer), x.clone().requires_grad_(), copy.deepcopy(states)
        leaves = own_states if kind == "lstm" else [own_states]
        for leaf in leaves:
            leaf.requires_grad_()
        torch.manual_seed(1)
        results = flatten(
            run_ours(kernels, operator, own, own_x, own_states) if run is None else run(own, own_x, own_states)
        )
        torch.manual_seed(2)
        sum((result * torch.randn(result.shape)).sum() for result in results).backward()
        gradients = [leaf.grad for leaf in (own_x, *leaves, *own.parameters())]
        sides.append([*(result.detach() for result in results), *gradients])
        strides = [result.stride() for result in results[:1]]
        sides[-1].append(torch.tensor(strides))
    torch.testing.assert_close(sides[1], sides[0], rtol=tolerance, atol=tolerance * 10)


@pytest.mark.sampled(8)
@kinds
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_results_and_gradients_are_those_of_torch(kernels, kind, batch_first, bias, bidirectional):
    layer, operator = make_layer(kind, 6, 20, batch_first=batch_first, bias=bias, bidirectional=bidirectional)

    compare(kernels, kind, layer, operator, torch.randn(7, 5, 6))


@kinds
def test_several_layers_with_dropout_draw_the_same_numbers(kernels, kind):
    layer, operator = make_layer(kind, 6, 20, num_layers=3, dropout=0.4, bidirectional=True)

    compare(kernels, kind, layer, operator, torch.randn(7, 5, 6))


@kinds
def test_a_layer_in_eval_mode_drops_nothing(kernels, kind):
    layer, operator = make_layer(kind, 6, 20, num_layers=2, dropout=0.4)

    compare(kernels, kind, layer.eval(), operator, torch.randn(7, 5, 6))


@given(
    kind=st.sampled_from(sorted(KINDS)),
    num_steps=st.integers(1, 5),
    num_rows=st.integers(1, 35),
    num_inputs=st.integers(1, 9),
    num_units=st.integers(1, 70),
)
def test_any_sizes_do(kernels, kind, num_steps, num_rows, num_inputs, num_units):
    layer, operator = make_layer(kind, num_inputs, num_units)

    compare(kernels, kind, layer, operator, torch.randn(num_steps, num_rows, num_inputs))


@kinds
def test_long_sequences_do(kernels, kind):
    layer, operator = make_layer(kind, 3, 16)

    compare(kernels, kind, layer, operator, torch.randn(200, 4, 3), tolerance=1e-4)


@kinds
def test_rows_may_be_divided_among_threads(kernels, kind):
    layer, operator = make_layer(kind, 6, 20)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        compare(kernels, kind, layer, operator, torch.randn(7, 37, 6))
    finally:
        torch.set_num_threads(before)


@kinds
@pytest.mark.parametrize("chosen", [0, 1])
def test_a_loss_of_a_single_result_has_its_gradient(kernels, kind, chosen):
    layer, operator = make_layer(kind, 6, 20)
    x = torch.randn(7, 5, 6)
    states = make_states(layer, 5, kind)

    flatten(run_ours(kernels, operator, layer, x, states))[chosen].square().mean().backward()

    found = [weight.grad.clone() for weight in layer.parameters()]
    layer.zero_grad()
    flatten(layer(x, tuple(states) if kind == "lstm" else states))[chosen].square().mean().backward()
    torch.testing.assert_close(found, [weight.grad for weight in layer.parameters()], rtol=1e-4, atol=1e-7)


@kinds
def test_large_numbers_saturate_and_nan_stays(kernels, kind):
    layer, operator = make_layer(kind, 4, 20)
    x = torch.randn(3, 6, 4)
    x[:, 1], x[:, 2, 0] = 1e6, torch.nan
    states = make_states(layer, 6, kind)

    with torch.no_grad():
        found = run_ours(kernels, operator, layer, x, states)
        expected = flatten(layer(x, tuple(states) if kind == "lstm" else states))

    # a sum of numbers of a million that is small itself is as good as they are
    torch.testing.assert_close(list(found), expected, equal_nan=True, rtol=1e-5, atol=0.1 if kind == "relu" else 1e-5)


@kinds
def test_frozen_weights_get_no_gradient(kernels, kind):
    layer, operator = make_layer(kind, 6, 20)
    layer.weight_hh_l0.requires_grad_(False)

    run_ours(kernels, operator, layer, torch.randn(7, 5, 6), make_states(layer, 5, kind))[0].sum().backward()

    assert layer.weight_hh_l0.grad is None
    assert layer.weight_ih_l0.grad is not None


def test_writing_to_a_result_reaches_no_gradient(kernels):
    layer, operator = make_layer("lstm", 6, 20)
    x, states = torch.randn(7, 5, 6), make_states(layer, 5, "lstm")

    output = run_ours(kernels, operator, layer, x, states)[0]
    output.mul_(2)
    output.sum().backward()

    found = layer.weight_hh_l0.grad.clone()
    layer.zero_grad()
    (2 * layer(x, tuple(states))[0]).sum().backward()
    torch.testing.assert_close(found, layer.weight_hh_l0.grad, rtol=1e-4, atol=1e-5)


def test_gradients_are_computed_once(kernels):
    layer, operator = make_layer("gru", 6, 20)
    loss = run_ours(kernels, operator, layer, torch.randn(7, 5, 6), make_states(layer, 5, "gru"))[0].sum()
    loss.backward(retain_graph=True)

    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()
