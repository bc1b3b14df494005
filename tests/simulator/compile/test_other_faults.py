"""A compilation that fails names the other faults of the step, too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as poptorch

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
