"""Calls of replay that ran ahead are those that somebody would have asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, make_empty_state
from porting.engines.contract.trial import Trial
from porting.engines.parity.replayed_calls import ReplayedCalls
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors


@pytest.fixture
def make_calls(settings):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    inputs = [torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])]
    graph = capture_step(model, inputs, loss=nn.functional.cross_entropy, mode="training")
    request = BuildRequest(CallPlan(), groups=(settings("ADAM"),), group_names=(("weight", "bias"),))
    weights = {host.name: host.tensor.detach() for host in host_tensors(model)}

    def make_calls():
        trial = Trial(weights, inputs, request.plan, request.groups, request.group_names)
        return ReplayedCalls(graph, request, trial)

    make_calls.graph, make_calls.request = graph, request
    return make_calls


def copy_all(found):
    return {key: value.clone() for key, value in found.items()}


def are_equal(one, other):
    return list(one) == list(other) and all(torch.equal(one[key], other[key]) for key in one)


def test_calls_that_ran_ahead_are_what_is_found(make_calls, monkeypatch):
    wanted = make_calls()
    expected = [copy_all(wanted.collect(call)) for call in (1, 2, 3)]
    calls = make_calls()

    calls.run_ahead(3, while_wanted=lambda: True)
    monkeypatch.setattr(ReplayExecutable, "run", None)  # they are not run again

    assert all(are_equal(calls.collect(call), expected[call - 1]) for call in (1, 2, 3))


def test_nothing_runs_ahead_that_cannot_be_kept(make_calls, monkeypatch):
    monkeypatch.setattr("porting.engines.parity.replayed_calls._MOST_KEPT_BYTES", 0)
    num_runs = []
    run = ReplayExecutable.run
    monkeypatch.setattr(ReplayExecutable, "run", lambda *args, **kwargs: num_runs.append(1) or run(*args, **kwargs))

    make_calls().run_ahead(3, while_wanted=lambda: True)

    assert len(num_runs) == 1


def test_a_call_that_fails_ahead_is_run_from_the_start_when_it_is_asked_for(make_calls, monkeypatch):
    expected = copy_all(make_calls().collect(2))
    calls, run, failures = make_calls(), ReplayExecutable.run, [None, MemoryError("no room")]

    def fail_once(*args, **kwargs):
        results = run(*args, **kwargs)
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        return results

    monkeypatch.setattr(ReplayExecutable, "run", fail_once)

    calls.run_ahead(3, while_wanted=lambda: True)

    assert are_equal(calls.collect(2), expected)


def test_a_state_without_memory_tells_what_there_will_be(make_calls):
    real = make_empty_state(make_calls.graph, make_calls.request)
    told = make_empty_state(make_calls.graph, make_calls.request, has_memory=False)

    assert list(told.parameters) == list(real.parameters)
    for name, parameter in real.parameters.items():
        other = told.parameters[name]
        assert other.is_meta
        assert (other.shape, other.stride(), other.requires_grad) == (parameter.shape, parameter.stride(), True)
