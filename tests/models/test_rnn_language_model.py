"""The language model is what its definition says, layer by layer, and its state may be carried over windows."""

from __future__ import annotations

import math

import pytest
import torch

from porting import PortOptions, to_ipu
from porting.models.rnn_language_model import VARIANTS, build, example_batch, loss, perplexity


def lstm_by_formulas(x_BTE, weights, hidden_BH, cell_BH):
    """Compute an LSTM as its definition reads: gates i, f, g, o in this order."""
    from_input, from_hidden, input_bias, hidden_bias = weights
    outputs = []
    for x_BE in x_BTE.unbind(1):
        gates = x_BE @ from_input.T + input_bias + hidden_BH @ from_hidden.T + hidden_bias
        entry, forget, candidate, exit_gate = gates.chunk(4, dim=1)
        cell_BH = torch.sigmoid(forget) * cell_BH + torch.sigmoid(entry) * torch.tanh(candidate)
        hidden_BH = torch.sigmoid(exit_gate) * torch.tanh(cell_BH)
        outputs.append(hidden_BH)
    return torch.stack(outputs, dim=1), hidden_BH, cell_BH


def test_every_layer_is_its_definition():
    model = build("small", dropout=0.0)
    tokens = example_batch(model.config, batch_size=3)[0]
    hidden, cell = torch.rand(3, 2, 48), torch.rand(3, 2, 48)

    logits, last_hidden, last_cell = model(tokens, hidden, cell)

    x = model.embedding.weight[tokens]
    for number, layer in enumerate(model.layers):
        weights = (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
        x, of_layer, kept = lstm_by_formulas(x, weights, hidden[:, number], cell[:, number])
        torch.testing.assert_close(last_hidden[:, number], of_layer)
        torch.testing.assert_close(last_cell[:, number], kept)
    torch.testing.assert_close(logits, x @ model.output.weight.T + model.output.bias)


def test_the_ptb_model_has_the_sizes_of_the_example():
    model = build("ptb")

    embedding, output = 10_000 * 650, 650 * 10_000 + 10_000
    layer = 4 * (650 * 650 + 650 * 650 + 650 + 650)
    assert sum(parameter.numel() for parameter in model.parameters()) == embedding + 2 * layer + output


def test_all_parameters_start_uniform_between_a_tenth_and_minus_a_tenth():
    values = torch.cat([parameter.detach().flatten() for parameter in build("small").parameters()])

    assert values.abs().max() <= 0.1
    assert values.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.02)


def test_two_windows_with_the_state_between_them_are_one_long_window():
    model = build("small").eval()
    tokens = torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(0))

    first, *state = model(tokens[:, :5], *model.first_state(3))
    second, *end = model(tokens[:, 5:], *state)

    whole, *expected = model(tokens, *model.first_state(3))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(end, expected)


def test_a_ported_model_carries_its_state_as_truncated_backpropagation_does():
    batches = [example_batch(VARIANTS["small"], batch_size=4, seed=seed) for seed in range(4)]

    def train(step):
        hidden, cell = batches[0][1:3]
        losses = []
        for tokens, _hidden, _cell, labels in batches:
            (hidden, cell), value = step(tokens, hidden, cell, labels)
            losses.append(value)
        return losses

    torch.manual_seed(0)
    plain = build("small")
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)

    def eager_step(tokens, hidden, cell, labels):
        outputs = plain(tokens, hidden, cell)
        value = loss(outputs, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return (outputs[1].detach(), outputs[2].detach()), value.item()

    expected = train(eager_step)

    torch.manual_seed(0)
    model = build("small")
    ported = to_ipu(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))

    def ported_step(*batch):
        (_logits, hidden, cell), value = ported(*batch)
        return (hidden, cell), value.item()

    assert train(ported_step) == pytest.approx(expected, rel=1e-5)


def test_with_all_outputs_accumulation_gives_every_text_its_state_back():
    tokens, hidden, cell, labels = example_batch(VARIANTS["small"], batch_size=6)
    model = build("small", dropout=0.0)
    expected = model(tokens, hidden, cell)
    options = PortOptions(micro_batch=2, accumulation=3, output_mode="all")

    returned, _loss = to_ipu(model, loss, options=options)(tokens, hidden, cell, labels)

    for ours, theirs in zip(returned, expected):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_perplexity_is_infinite_where_floats_end():
    assert perplexity(1e6) == math.inf
