"""Values that Python decides are found over several runs, batches and modes of the model."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from porting.check import check

X, Y = torch.rand(8, 4), torch.randint(3, (8,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = 1
        self.steps = 0


def model_of(forward):
    return type("Made", (Model,), {"forward": forward})()


def found(forward, **options):
    report = check(model_of(forward), nn.CrossEntropyLoss(), (X, Y), **options)
    first = forward.__code__.co_firstlineno
    return [(finding.code, finding.place and finding.place.line - first) for finding in report.findings]


def test_a_random_number_of_python_is_found():
    def forward(self, x):
        return self.layer(x) * random.random()

    assert found(forward) == [("C020", 1)]


def test_a_branch_of_the_third_run_is_found():
    def forward(self, x):
        self.steps += 1
        return self.layer(x) if self.steps < 3 else self.layer(x).relu()

    assert ("C020", 2) in found(forward)


def test_what_only_eval_mode_does_is_found():
    def forward(self, x):
        return self.layer(x) if self.training else self.layer(x) * random.random()

    assert found(forward) == [("C020", 1)]


def test_what_is_meant_can_be_named():
    def forward(self, x):
        self.steps += 1
        return self.layer(x) * self.steps

    assert found(forward)
    assert found(forward, allow_frozen=["steps"]) == []


def test_a_value_of_another_batch_is_found():
    def forward(self, x, scale):
        return self.layer(x) * scale

    batches = [(X, 1.0, Y), (X, 2.0, Y)]
    report = check(model_of(forward), nn.CrossEntropyLoss(), loader=batches)

    assert "C020" in report.codes or "C042" in report.codes


def test_a_search_leaves_no_trace():
    def forward(self, x):
        self.steps += 1
        return self.layer(x) * random.random()

    model = model_of(forward)
    state = random.getstate()

    check(model, nn.CrossEntropyLoss(), (X, Y))

    assert model.steps == 0
    assert random.getstate() == state


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_dropout_freezes_nothing(rate):
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(rate))

    assert "C020" not in check(model, nn.CrossEntropyLoss(), (X, Y)).codes
