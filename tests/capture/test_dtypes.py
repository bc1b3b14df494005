"""The element types of the device: what is narrowed, what may be mixed, what indices are widened to."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.capture.dtypes import device_dtype, float_cast_targets, index_arguments, is_device_dtype, rounded_result

aten = torch.ops.aten
HALF, SINGLE = torch.ones(2, dtype=torch.float16), torch.ones(2)


def dtypes(function, *args):
    class Body(nn.Module):
        def forward(self, *args):
            return function(*args)

    graph = capture_step(Body(), args, mode="inference")
    return [info.dtype for info in graph.outputs]


@pytest.mark.parametrize(
    ("host", "device"),
    [
        (torch.int64, torch.int32),
        (torch.float64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float16, torch.float16),
        (torch.int32, torch.int32),
        (torch.int16, torch.int16),
        (torch.int8, torch.int8),
        (torch.uint8, torch.uint8),
        (torch.bool, torch.bool),
    ],
)
def test_a_type_is_kept_or_narrowed(host, device):
    assert device_dtype(host) == device
    assert is_device_dtype(host)


@pytest.mark.parametrize("host", [torch.complex64, torch.complex128, torch.qint8])
def test_the_device_lacks_complex_and_quantised_types(host):
    assert not is_device_dtype(host)


@pytest.mark.parametrize("host", [torch.int64, torch.float64, torch.bfloat16, torch.bool, torch.uint8])
def test_inputs_enter_with_the_device_s_type(host):
    graph = capture_step(nn.Identity(), [torch.ones(2).to(host)], mode="inference")

    assert graph.inputs[0].dtype == device_dtype(host)
    assert graph.inputs[0].host_dtype == host


def test_parameters_enter_with_the_device_s_type():
    graph = capture_step(nn.Linear(2, 2).double(), [torch.ones(1, 2).double()], mode="inference")

    assert {info.dtype for info in graph.parameters} == {torch.float32}
    assert {info.host_dtype for info in graph.parameters} == {torch.float64}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.argmax(),
        lambda x: x.long(),
        lambda x: (x > 0).sum(),
        lambda x: x.sort()[1],
        lambda x: x.topk(1).indices,
        lambda x: torch.arange(3),
        lambda x: torch.randint(0, 3, (2,)),
    ],
)
def test_64_bit_results_are_narrowed(function):
    assert dtypes(function, SINGLE) == [torch.int32]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.double() + 1,
        lambda x: x.to(torch.bfloat16),
        lambda x: torch.zeros(2, dtype=torch.float64),
        lambda x: x.int() / 2,
    ],
)
def test_other_floating_point_types_become_single_precision(function):
    assert dtypes(function, SINGLE) == [torch.float32]


INDEXED = {
    "gather": lambda x, i: x.gather(1, i),
    "scatter": lambda x, i: torch.zeros_like(x).scatter(1, i, x),
    "scatter of a number": lambda x, i: x.scatter(1, i, 2.0),
    "scatter_": lambda x, i: torch.zeros_like(x).scatter_(1, i, x),
    "scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
    "scatter_reduce": lambda x, i: torch.zeros_like(x).scatter_reduce(1, i, x, reduce="amax"),
    "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i, 1),
    "index_copy": lambda x, i: x.index_copy(0, i[0, :2], x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i[0], 2.0),
    "index_select": lambda x, i: x.index_select(0, i[0]),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i[:, 0]),
    "nll_loss": lambda x, i: F.nll_loss(x, i[:, 0]),
    "embedding": lambda x, i: F.embedding(i, x),
    "indexing": lambda x, i: x[i, i],
}


@pytest.mark.parametrize("function", INDEXED.values(), ids=INDEXED.keys())
def test_narrowed_indices_still_index(function):
    assert dtypes(function, torch.ones(3, 3), torch.zeros(3, 3, dtype=torch.long)) == [torch.float32]


def test_one_hot_counts_in_the_device_s_integers():
    assert dtypes(lambda i: F.one_hot(i, 4), torch.zeros(3, dtype=torch.long)) == [torch.int32]


def test_indices_are_widened_for_one_operator_only():
    class Body(nn.Module):
        def forward(self, x, i):
            return x.gather(1, i), i + 1

    graph = capture_step(Body(), [torch.ones(3, 3), torch.zeros(3, 3, dtype=torch.long)], mode="inference")

    assert [(op.operator, op.dtypes) for op in graph.operators] == [
        ("aten.to.dtype", (torch.int64,)),
        ("aten.gather.default", (torch.float32,)),
        ("aten.add.Tensor", (torch.int32,)),
    ]


def test_the_arguments_that_want_64_bits_are_known_by_name():
    assert index_arguments(aten.gather.default) == ("index",)
    assert index_arguments(aten.add.Tensor) == ()


MIXED = {
    "sum": (lambda h, s: h + s, torch.float32),
    "product with a parameter's type": (lambda h, s: F.linear(h, s[None]), torch.float16),
    "linear": (lambda h, s: F.linear(s, h[None]), torch.float32),
    "layer_norm": (lambda h, s: F.layer_norm(h, (2,), s), torch.float16),
    "matmul": (lambda h, s: h @ s, torch.float32),
    "cat": (lambda h, s: torch.cat([h, s]), torch.float32),
    "where": (lambda h, s: torch.where(h > 0, h, s), torch.float32),
    "cross_entropy": (lambda h, s: F.cross_entropy(h, s), torch.float16),
    "binary_cross_entropy": (lambda h, s: F.binary_cross_entropy(s, h), torch.float32),
    "write": (lambda h, s: (h * 1).copy_(s), torch.float16),
    "scalar": (lambda h, s: h * s.sum(), torch.float16),
}


@pytest.mark.parametrize(("function", "dtype"), MIXED.values(), ids=MIXED.keys())
def test_half_and_single_precision_may_meet(function, dtype):
    assert dtypes(function, HALF, SINGLE) == [dtype]


def test_a_half_activation_keeps_its_type_in_a_single_precision_layer():
    graph = capture_step(nn.Linear(4, 2), [torch.ones(3, 4).half()], mode="inference")

    assert graph.outputs[0].dtype == torch.float16


def test_a_product_of_an_activation_and_a_parameter_follows_the_activation(trace):
    graph = trace(lambda weight, x: x @ weight, torch.ones(2, 5).half())

    assert graph.outputs[0].dtype == torch.float16


def test_batch_norm_keeps_its_statistics_in_single_precision():
    graph = capture_step(nn.BatchNorm1d(2), [torch.ones(3, 2).half()], mode="inference")

    assert graph.outputs[0].dtype == torch.float16
    assert {info.dtype for info in graph.buffers} == {torch.float32, torch.int32}


def test_operators_without_a_half_kernel_round_their_result(trace):
    graph = trace(lambda _weight, x: F.avg_pool3d(x, 2), torch.ones(1, 2, 2, 2).half())

    assert [op.dtypes[0] for op in graph.operators] == [torch.float32, torch.float32, torch.float16]


def test_equal_types_are_left_alone():
    targets = float_cast_targets(aten.linear.default, [HALF, HALF], [False, True])

    assert targets == [torch.float16, torch.float16]


def test_integers_among_mixed_types_are_left_alone():
    targets = float_cast_targets(aten.embedding_bag.default, [HALF, torch.ones(2).int(), SINGLE], [True, False, False])

    assert targets == [torch.float16, torch.int32, torch.float16]


def test_only_half_results_of_operators_without_a_half_kernel_are_rounded():
    assert rounded_result(aten.avg_pool3d.default, [HALF]) == torch.float16
    assert rounded_result(aten.avg_pool3d.default, [SINGLE]) is None
    assert rounded_result(aten.add.Tensor, [HALF]) is None


def test_a_complex_input_is_refused(refusal):
    finding = refusal(lambda weight, x: x, torch.ones(2, dtype=torch.complex64))

    assert finding.code == "C012"
    assert "torch.complex64" in finding.message
