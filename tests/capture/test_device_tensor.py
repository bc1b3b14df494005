"""The tensor that `forward` sees: on the device, of a shape and a type, without a value."""

from __future__ import annotations

import copy

import pytest
import torch

from porting.capture import capture_step
from porting.capture.device_tensor import IPU, is_device
from porting.diagnostics import CaptureError


@pytest.fixture
def leftover(trace):
    """Give a device tensor whose capture is over."""
    kept = []
    trace(lambda weight: kept.append(weight * 2))
    return kept[0]


@pytest.mark.parametrize("device", ["ipu", "ipu:0", "ipu:3", torch.device("ipu"), torch.device("ipu", 1)])
def test_the_device_goes_by_its_names(device):
    assert is_device(device)


@pytest.mark.parametrize("device", [None, "cpu", "cuda:0", "ipus", torch.device("cpu"), 0])
def test_other_devices_do_not(device):
    assert not is_device(device)


def test_a_device_tensor_tells_where_it_is(trace):
    seen = []

    trace(lambda weight: seen.append((weight.device, weight.is_ipu, weight.is_cpu, weight.is_cuda)))

    assert seen == [(IPU, True, False, False)]


def test_a_device_tensor_has_a_shape_and_a_type(trace):
    seen = []

    trace(lambda weight: seen.append((weight.shape, weight.dtype, weight.dim(), len(weight), weight.numel())))

    assert seen == [((5, 4), torch.float32, 2, 5, 20)]


def test_all_methods_of_tensors_are_there(trace):
    graph = trace(lambda weight: weight.inner(weight))

    assert [operator.operator for operator in graph.operators] == ["aten.inner.default"]


def test_iterating_gives_rows(trace):
    graph = trace(lambda weight: [row * 2 for row in weight])

    assert [info.shape for info in graph.outputs] == [(4,)] * 5


def test_its_text_says_that_there_is_no_value(leftover):
    assert str(leftover) == "tensor(<unavailable>, device='ipu:0', size=(5, 4), dtype=torch.float32)"


def test_what_is_left_over_can_be_asked_for_its_shape(leftover):
    assert leftover.shape == (5, 4)


@pytest.mark.parametrize("use", [lambda t: t + 1, lambda t: t.sum(), torch.cat, copy.deepcopy])
def test_what_is_left_over_cannot_be_computed_with(leftover, use):
    with pytest.raises(CaptureError) as caught:
        use([leftover, leftover] if use is torch.cat else leftover)

    assert caught.value.code == "C014"


def test_torchs_errors_name_a_device_tensor_as_what_it_is_for_the_user(body):
    with pytest.raises(TypeError, match=r"got \(float, Tensor\)"):
        capture_step(body(lambda weight: torch.rsub(1.0, weight)), mode="inference")
