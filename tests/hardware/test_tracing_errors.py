"""What PopTorch cannot trace is a finding with a code and a line, and leaves a plain model behind."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import assert_code, one_batch, port, sgd


class Gate(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        return h if h.mean() > 0 else -h  # the line


class Number(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        return h * h.sum().item()  # the line


class Selection(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        return h[h.sum(1) > 0][0] + h  # the line


class FromHost(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.ones(3, device="cpu")  # the line


class ToHost(nn.Linear):
    def forward(self, x):
        return super().forward(x).cpu()  # the line


class Printing(nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        print(h, file=io.StringIO())  # noqa: T201 # the line
        return h


each_case = pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("C001", Gate),
        ("C001", Number),
        ("C002", Selection),
        ("C003", FromHost),
        ("C004", ToHost),
        ("C010", Printing),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)


def trace(model):
    return port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))(*one_batch())


@each_case
def test_what_cannot_be_traced_has_a_code_and_the_weights_come_back(code, kind):
    model = kind(4, 3)

    assert_code(code, lambda: trace(model))

    assert type(model.weight) is nn.Parameter
    assert not model.weight.is_meta


@each_case
def test_the_error_of_a_trace_names_the_line_of_forward(code, kind):
    error = assert_code(code, lambda: trace(kind(4, 3)))

    assert "# the line" in str(error)


class Broken(nn.Linear):
    def forward(self, x):
        raise KeyError("mine")


def test_an_exception_of_the_models_own_comes_through_and_leaves_a_plain_model():
    model = Broken(4, 3)

    with pytest.raises(KeyError, match="mine"):
        trace(model)

    assert type(model.weight) is nn.Parameter
    assert not model.weight.is_meta


class Detaching(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


def test_a_detached_loss_is_l003():
    assert_code("L003", lambda: trace(Detaching(4, 3)))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count = self.count + 1
        return self.layer(x)


class Growing(Counting):
    def forward(self, x):
        self.count = torch.cat([self.count, self.count])
        return self.layer(x)


def test_a_buffer_that_forward_assigns_with_another_shape_is_c006():
    assert_code("C006", lambda: trace(Growing()))


def test_a_buffer_that_forward_assigns_stays_the_registered_one():
    model = Counting()
    count = model.count

    trace(model)

    assert model.count is count
