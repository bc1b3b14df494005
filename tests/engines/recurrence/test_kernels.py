"""The compiled loops: they are loaded from a library that is theirs, and say when memory is short."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from porting.engines.recurrence.kernels import NUM_GATES, Kernels, Kind, LayerMemory

pytestmark = pytest.mark.vectors


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


sizes = st.one_of(st.integers(1, 70), st.just(1024))


@pytest.fixture(params=[1, 3])
def num_threads(request):
    """Let that many threads share a product."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("num_threads")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(num_rows=st.integers(1, 70), inner=sizes, columns=sizes, has_bias=st.booleans(), is_transposed=st.booleans())
def test_a_product_is_that_of_torch(kernels, num_rows, inner, columns, has_bias, is_transposed):
    left, bias = torch.randn(num_rows, inner), torch.randn(columns) if has_bias else None
    right = torch.randn(columns, inner).t() if is_transposed else torch.randn(inner, columns)

    found = kernels.multiply(left, right, bias)

    expected = left @ right if bias is None else left @ right + bias
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("num_threads")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    num_steps=st.integers(1, 9),
    num_rows=sizes,
    left_columns=sizes,
    columns=st.integers(1, 70),
    is_batched=st.booleans(),
)
def test_a_product_over_steps_is_that_of_torch(kernels, num_steps, num_rows, left_columns, columns, is_batched):
    left = torch.randn(num_steps, num_rows, left_columns)
    right = torch.randn(num_rows, num_steps, columns).transpose(0, 1)
    right = right if is_batched else right.contiguous()

    found = kernels.multiply_transposed(left, right)

    expected = torch.einsum("tbm,tbn->mn", left.double(), right.double()).float()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
