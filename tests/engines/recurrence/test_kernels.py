"""The compiled loops: they are loaded from a library that is theirs, and say when memory is short."""

from __future__ import annotations

import pytest
import torch

from porting.engines.recurrence.kernels import NUM_GATES, Kernels, Kind, LayerMemory


def test_a_file_that_is_no_library_is_refused(tmp_path):
    (tmp_path / "loops.so").write_text("nothing")

    with pytest.raises(OSError, match="loops.so"):
        Kernels(tmp_path / "loops.so")


@pytest.mark.parametrize("kind", Kind)
def test_a_layer_without_weights_squashes_its_products(kernels, kind):
    gates = torch.randn(3, 2, NUM_GATES[kind] * 5)
    wanted = gates.clone()
    hidden, cells = torch.zeros(4, 2, 5), torch.zeros(4, 2, 5)

    kernels.run_forward(LayerMemory(kind, False, torch.zeros(NUM_GATES[kind] * 5, 5), gates, hidden, cells))

    first = wanted[0].chunk(NUM_GATES[kind], -1)
    if kind is Kind.LSTM:
        expected = first[3].sigmoid() * (first[0].sigmoid() * first[2].tanh()).tanh()
    elif kind is Kind.GRU:
        expected = (1 - first[1].sigmoid()) * first[2].tanh()
    else:
        expected = first[0].tanh() if kind is Kind.TANH else first[0].relu()
    torch.testing.assert_close(hidden[1], expected)


def test_a_reversed_layer_begins_at_the_end(kernels):
    gates = torch.randn(3, 2, 5)
    hidden = torch.zeros(4, 2, 5)
    hidden[3] = 1.0
    weight = torch.eye(5)
    expected = (gates[2] + 1.0).tanh()

    kernels.run_forward(LayerMemory(Kind.TANH, True, weight, gates, hidden))

    torch.testing.assert_close(hidden[2], expected)
    torch.testing.assert_close(hidden[1], (gates[1] + expected).tanh())


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 40), (2, 16, 16), (4, 33, 17)])
def test_steps_are_put_last(kernels, shape):
    values = torch.randn(shape[1], shape[0], shape[2]).transpose(0, 1)

    assert torch.equal(kernels.put_steps_last(values), values.permute(2, 0, 1).reshape(shape[2], -1))
    assert torch.equal(kernels.transpose(values[0].contiguous()), values[0].t())
