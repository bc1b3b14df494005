"""What a capture refuses is said in PopTorch's words first, then as a finding with notes of the step's other faults."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException

import porting.simulator as poptorch
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


# -- the other faults -------------------------------------------------------------------------------------------------

X = torch.rand(4, 4)


class Model(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.runs = 0
        self.body = body

    def forward(self, x):
        self.runs += 1
        return self.body(x)


def refused(body):
    model = Model(body)
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(model)(X)
    return caught.value, model


def test_other_faults_are_a_note_with_their_lines():
    def body(x):
        scale = x.max().item()
        moved = x.cpu()
        return torch.lgamma(moved) * scale

    error, _model = refused(body)

    first = body.__code__.co_firstlineno
    (note,) = [note for note in error.finding.notes if "other fault" in note]
    assert error.finding.place.line == first + 1
    assert note.startswith("2 other faults in the same step:\n  C004 at ")
    assert f":{first + 2}:" in note
    assert "no `aten::lgamma`" in note


def test_a_single_fault_stands_alone():
    error, _model = refused(lambda x: x * x.max().item())

    assert not [note for note in error.finding.notes if "other fault" in note]


def test_the_further_run_leaves_no_trace():
    _error, model = refused(lambda x: x * x.max().item())

    assert model.runs == 0


def test_many_faults_are_counted():
    def body(x):
        for _ in range(3):
            x = x * x.max().item()
        a, b, c = x.cpu(), x.numpy(), torch.nonzero(x)
        d, e, f = torch.unique(x), torch.fft.rfft(x), float(x.sum())
        return a * f, b, c, d, e

    error, _model = refused(body)

    assert any("and 1 more: `porting.check(model, loss, batch)` tells all" in note for note in error.finding.notes)


def test_all_refused_forms_are_named():
    error, _model = refused(lambda x: torch.topk(x, 2, sorted=False).values.triu() + torch.lgamma(x)[:, :2])

    assert "sorted=False" in error.message
    assert [note for note in error.finding.notes if "triu" in note]
    assert [note for note in error.finding.notes if "lgamma" in note]
