"""What a watcher is told of an operator."""

from __future__ import annotations

import torch

from porting.observe.plain_functions import KnownTensors
from porting.observe.watcher import OperatorCall, StepState, WatchedOperator


def test_an_operator_that_is_told_has_not_run_yet():
    x = torch.zeros(2)
    call = OperatorCall(WatchedOperator("add_"), "x", KnownTensors(), torch.Tensor.add_, (x, 1.0), {"alpha": 2.0})
    before = x.tolist()

    assert call.run() is x
    assert (before, x.tolist()) == ([0.0, 0.0], [2.0, 2.0])


def test_an_operator_outside_of_all_modules_is_that_of_forward():
    assert WatchedOperator("relu").module_name == "forward"
    assert WatchedOperator("relu", "blocks.3").module_name == "blocks.3"


def test_a_step_that_keeps_nothing_has_an_empty_state():
    state = StepState()

    assert (dict(state.parameters), dict(state.buffers), dict(state.slots)) == ({}, {}, {})
