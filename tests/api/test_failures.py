from __future__ import annotations

import copy
import linecache

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import to_ipu
from porting.api.batch import BatchSignature
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


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count = self.count + 1  # the line
        return super().forward(x)


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x):
        raise RuntimeError(VENDOR_MESSAGES["C001"])  # the line


def line_of(place):
    return linecache.getline(place.file, place.line)


def test_an_error_that_came_through_forward_names_its_line_and_module():
    model = nn.Sequential(nn.Identity(), Reading())
    with pytest.raises(RuntimeError) as caught:
        model(X)

    explained = explain_failure(caught.value, None, (X, Y), {}, remedy="", model=model)

    assert explained.code == "C001"
    assert "# the line" in line_of(explained.finding.place)
    assert explained.finding.notes[0] == "the module is `1` (Reading)"


@pytest.mark.parametrize("kind", ["Buffer", "Parameter"])
def test_a_reassigned_buffer_is_named_with_the_line_that_assigns_it(kind):
    model = nn.Sequential(Counting())
    said = f"{kind} 0.count is reassigned within the model when calling the forward method. This is not supported."

    explained = explain_failure(RuntimeError(said), None, (X, Y), {}, remedy="", model=model)

    assert explained.code == "C006"
    assert "# the line" in line_of(explained.finding.place)
    assert explained.finding.help == ("write into it in place: `self.count.copy_(new_value)`",)


def test_a_removed_buffer_of_a_model_without_source_names_the_call():
    said = "Buffer 0.gone is removed from the model when calling the forward method."

    explained = explain_failure(RuntimeError(said), None, (X, Y), {}, remedy="", model=nn.Sequential(nn.ReLU()))

    assert (explained.code, explained.finding.place.file) == ("C006", __file__)


class LateTarget(nn.Module):
    """Copies a part of itself in its first call, and keeps the copy."""

    def __init__(self):
        super().__init__()
        self.online, self.target = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), None

    def forward(self, x):
        if self.target is None:
            self.target = copy.deepcopy(self.online).requires_grad_(False)
        return self.online(x) - self.target(x)


def test_a_layer_that_forward_copies_belongs_in_its_constructor(batches):
    with pytest.raises(CaptureError, match=r"C014(?s:.)*in `__init__`"):
        to_ipu(LateTarget(), nn.CrossEntropyLoss())(*batches[0])
    model = LateTarget()
    model(batches[0][0])
    _output, loss = to_ipu(model, nn.CrossEntropyLoss())(*batches[0])

    assert loss.isfinite()
