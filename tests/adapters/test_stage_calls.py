"""Names of stages: of each call of a module, or of one of several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.adapters.stage_calls import collect_modules, follow_stages, split_call


class Twice(nn.Module):
    """A block that is called twice, beside another."""

    def __init__(self):
        super().__init__()
        self.block = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)

    def forward(self, x):
        return self.block(self.other(self.block(x)))


def begun(model, stages, *, runs=1):
    found = []
    with follow_stages(model, stages, lambda stage, module, _args: found.append((stage, module))):
        for _run in range(runs):
            model(torch.ones(1, 2))
    return found


@pytest.mark.parametrize(
    ("stage", "known", "expected"),
    [
        ("block", ["block"], ("block", 0)),
        ("block#12", ["block"], ("block", 12)),
        ("block#0", ["block"], ("block#0", 0)),
        ("block#2", ["block", "block#2"], ("block#2", 0)),
        ("block#2#1", ["block#2"], ("block#2", 1)),
        ("#2", [], ("#2", 0)),
    ],
)
def test_a_number_behind_a_module_is_that_of_a_call(stage, known, expected):
    assert split_call(stage, known) == expected


def test_a_stage_without_a_number_begins_with_each_call():
    model = Twice()

    assert begun(model, ["block"]) == [("block", model.block)] * 2


def test_a_stage_with_a_number_begins_with_that_call_alone():
    model = Twice()

    assert begun(model, ["other", "block#2"]) == [("other", model.other), ("block#2", model.block)]


def test_calls_that_are_named_begin_no_other_stage():
    assert [stage for stage, _module in begun(Twice(), ["block", "block#2"])] == ["block", "block#2"]


def test_each_run_of_the_model_counts_anew():
    assert [stage for stage, _module in begun(Twice(), ["block#2"], runs=3)] == ["block#2"] * 3


def test_nothing_is_left_behind():
    model = Twice()

    begun(model, ["block"])

    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_shared_module_has_all_of_its_names():
    layer = nn.Linear(2, 2)

    assert list(collect_modules(nn.Sequential(layer, layer))) == ["0", "1"]
