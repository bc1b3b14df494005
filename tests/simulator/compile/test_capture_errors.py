"""What a capture refuses is said in PopTorch's words first, with the finding below."""

from __future__ import annotations

import pickle

import pytest
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from porting.diagnostics import CaptureError
from porting.simulator import Error
from porting.simulator._compile.capture_errors import DynamicShapeRefusal, make_vendor_error


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("C001", "a value is read", "aten::item is only supported in eager mode"),
        ("C002", "`aten::one_hot` has a shape that depends on values", "OneHot num classes must be specified"),
        (
            "C002",
            "`aten::nonzero` has a shape that depends on values",
            "Operations using aten::nonzero are unsupported",
        ),
        ("C004", "a tensor is moved to `cpu`", 'Illegal move to CPU (via `.to("cpu")`)'),
        ("C012", "an input is torch.complex64", "Unsupported input type torch.complex64"),
        ("L004", "there is no loss", "Couldn't find a loss in graph!"),
    ],
)
def test_the_vendors_words_come_first_and_the_finding_follows(code, message, words):
    refusal = make_vendor_error(CaptureError.of(code, message=message))

    assert isinstance(refusal, Error)
    assert str(refusal).startswith(words)
    assert f"error[{code}]" in str(refusal)


def test_a_tensor_of_the_host_is_described_as_the_vendor_does():
    error = CaptureError.of("C003", message="a CPU tensor", notes=("shape=[2, 3]", "dtype=float32"))

    assert "tensor(device=cpu, shape=[2, 3], dtype=Float)" in make_vendor_error(error).message


def test_what_the_vendors_python_part_finds_says_so():
    refusal = make_vendor_error(CaptureError.of("C006", message="a buffer is assigned"))

    assert (refusal.type, str(refusal).startswith("'poptorch_py_error': ")) == ("poptorch_py_error", True)


def test_reading_with_a_mask_is_torchs_own_exception_too():
    refusal = make_vendor_error(CaptureError.of("C002", message="`aten::index` has a shape that depends on values"))

    assert isinstance(refusal, DynamicShapeRefusal)
    assert isinstance(refusal, DynamicOutputShapeException)
    assert hash(refusal) == hash(refusal)


def test_a_refusal_travels_between_processes():
    refusal = make_vendor_error(CaptureError.of("C001", message="a value is read"))

    again = pickle.loads(pickle.dumps(refusal))

    assert (type(again), str(again), again.finding) == (type(refusal), str(refusal), refusal.finding)
