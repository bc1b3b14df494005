from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import to_ipu
from porting.api.batch_signature import BatchSignature
from porting.api.failures import explain_failure
from porting.diagnostics import BatchError, CaptureError, DeviceError, PortingError

X, Y = torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)

VENDOR_MESSAGES = {
    "L004": "Couldn't find a loss in graph!",
    "L005": "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
    "poptorch.identity_loss.",
    "C001": "aten::item is only supported in eager mode, but was intercepted in a static graph.",
    "C002": "Operations using aten::nonzero are unsupported because the output shape is determined by the tensor "
    "values. The IPU cannot support dynamic output shapes",
    "C003": "Expected an IPU tensor but got tensor(device=cpu, shape=[2], dtype=Long).",
    "C004": 'Illegal move to CPU (via `.to("cpu")`) when using the dispatcher.',
}


def explain(error, *, compiled_for=None, args=(X, Y)):
    return explain_failure(error, compiled_for, args, {}, remedy="compile anew")


@pytest.mark.parametrize(("code", "message"), VENDOR_MESSAGES.items(), ids=VENDOR_MESSAGES)
def test_a_message_of_the_vendor_gets_code_line_and_remedy(code, message):
    explained = explain(RuntimeError(f"\n{message}\n\nmore of it"))

    assert isinstance(explained, CaptureError)
    assert explained.code == code
    assert explained.finding.notes == (f"the device says: {message}",)
    assert explained.finding.place.file == __file__
    assert explained.finding.help


def test_a_message_that_nobody_knows_comes_through():
    assert explain(RuntimeError("something else")) is None


def test_an_error_of_the_toolkit_comes_through():
    assert explain(PortingError.of("L002")) is None


def test_an_error_that_carries_a_finding_keeps_it():
    error = poptorch.Error("too short")
    error.finding = PortingError.of("S001").finding

    explained = explain(error)

    assert type(explained) is DeviceError
    assert explained.finding is error.finding


def test_a_batch_unlike_the_compiled_one_is_the_reason_whatever_the_message():
    explained = explain(RuntimeError("anything"), compiled_for=BatchSignature((X[:2], Y[:2]), {}))

    assert isinstance(explained, BatchError)
    assert explained.code == "B001"


def test_a_batch_like_the_compiled_one_is_not_the_reason():
    assert explain(RuntimeError("anything"), compiled_for=BatchSignature((X, Y), {})) is None


@pytest.mark.parametrize("call", ["compile", "__call__"])
def test_a_first_batch_on_another_device_is_refused(call):
    ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss())

    with pytest.raises(BatchError) as caught:
        getattr(ported, call)(X.to("meta"), Y)

    assert caught.value.code == "B009"
    assert {type(parameter) for parameter in ported.model.parameters()} == {nn.Parameter}
