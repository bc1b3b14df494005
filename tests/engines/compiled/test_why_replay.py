"""Why a step is replayed: each reason is worded once, whoever asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.calls.step_anchors import StepObserver
from porting.engines.compiled.why_replay import why_not_compiled, why_plan_is_replayed
from porting.engines.contract.failures import why_not_tuned


def exchange(gradients):
    """Stand for an exchange between processes that is never made."""


@pytest.fixture
def graph():
    """Give the graph of a layer."""
    return capture_step(nn.Linear(2, 1), [torch.ones(3, 2)], mode="inference")


def test_an_ordinary_plan_needs_no_replay():
    assert why_plan_is_replayed(CallPlan(iterations=2, accumulation=3, replicas=4)) == ""


def test_an_ordinary_step_may_be_compiled_and_tuned(graph):
    request = BuildRequest(CallPlan(iterations=2, accumulation=3, replicas=4))

    assert (why_not_compiled(graph, request), why_not_tuned(request)) == ("", "")


@pytest.mark.parametrize(
    "request_of_one_way",
    [BuildRequest(CallPlan(), observer=StepObserver([])), BuildRequest(CallPlan(exchange=exchange, processes=2))],
    ids=["anchors", "exchange"],
)
def test_what_is_not_tuned_is_not_compiled_for_the_same_reason(graph, request_of_one_way):
    reason = why_not_tuned(request_of_one_way)

    assert reason
    assert why_not_compiled(graph, request_of_one_way) == reason


@pytest.mark.parametrize("plan", [{"adapts_loss_scaling": True}, {"rounds_at_random": True}, {"checks_floats": True}])
def test_what_looks_into_a_step_is_tuned_all_the_same(graph, plan):
    request = BuildRequest(CallPlan(**plan))

    assert why_not_tuned(request) == ""
    assert why_not_compiled(graph, request) == why_plan_is_replayed(request.plan) != ""


def test_a_sparse_constant_is_a_reason(graph):
    sparse = replace(graph, constant_values=(torch.eye(2).to_sparse(),))

    assert why_not_compiled(sparse, BuildRequest(CallPlan())) == "a constant of the graph is sparse"
