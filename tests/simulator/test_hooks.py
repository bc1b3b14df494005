"""Hooks around a compilation, and what forward is told about where it runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.fixture
def calls():
    """Give a list to which a test's hooks append."""
    return []


@pytest.fixture
def record(poptorch, calls):
    """Give a function that registers a recording hook and returns its handle; all are removed after the test."""
    handles = []

    def register(kind, name):
        hook = lambda: calls.append((name, poptorch.isRunningOnIpu()))  # noqa: E731
        handles.append(getattr(poptorch, f"register{kind}CompileHook")(hook))
        return handles[-1]

    yield register
    for handle in handles:
        handle.remove()


class Traced(nn.Module):
    def __init__(self, calls, fails=False):
        super().__init__()
        self.calls, self.fails = calls, fails

    def forward(self, x):
        self.calls.append(("forward", None))
        if self.fails:
            raise ValueError("mine")
        return x * 1


def names(calls):
    return [name for name, _ in calls]


# -- compile hooks


def test_hooks_run_around_the_trace_in_their_order(poptorch, calls, record):
    record("Pre", "pre 1")
    record("Pre", "pre 2")
    record("Post", "post 1")
    record("Post", "post 2")

    poptorch.inferenceModel(Traced(calls))(torch.ones(1))

    assert names(calls) == ["pre 1", "pre 2", "forward", "post 1", "post 2"]


def test_hooks_run_while_the_model_is_on_the_device(poptorch, calls, record):
    record("Pre", "pre")
    record("Post", "post")

    poptorch.inferenceModel(Traced([]))(torch.ones(1))

    assert calls == [("pre", True), ("post", True)]


def test_hooks_run_once_for_each_compilation(poptorch, calls, record):
    record("Pre", "pre")
    executor = poptorch.inferenceModel(Traced([]))

    executor(torch.ones(1))
    executor(torch.ones(1))

    assert names(calls) == ["pre"]


def test_post_hooks_run_after_a_failed_trace(poptorch, calls, record):
    record("Post", "post")

    with pytest.raises(ValueError, match="mine"):
        poptorch.inferenceModel(Traced(calls, fails=True))(torch.ones(1))

    assert names(calls) == ["forward", "post"]


def test_a_removed_hook_does_not_run(poptorch, calls, record):
    handle = record("Pre", "pre")

    handle.remove()
    poptorch.inferenceModel(Traced([]))(torch.ones(1))

    assert calls == []


def test_hooks_are_those_of_all_executors(poptorch, record):
    handle = record("Pre", "pre")

    assert handle.id in poptorch.PoplarExecutor._precompile_hooks
    assert handle.id not in poptorch.PoplarExecutor._postcompile_hooks


@pytest.mark.parametrize("kind", ["Pre", "Post"])
def test_a_hook_must_be_callable(poptorch, kind):
    with pytest.raises(RuntimeError, match=f"{kind}-compile hook must be callable"):
        getattr(poptorch, f"register{kind}CompileHook")("not callable")


def test_a_failing_hook_leaves_the_executor_usable(poptorch):
    def fail():
        raise ValueError("mine")

    executor = poptorch.inferenceModel(Traced([]))
    handle = poptorch.registerPreCompileHook(fail)
    with pytest.raises(ValueError, match="mine"):
        executor(torch.ones(1))

    handle.remove()

    assert not poptorch.isRunningOnIpu()
    assert executor(torch.ones(1)).item() == 1.0


# -- isRunningOnIpu


def test_forward_knows_that_it_is_traced(poptorch):
    model = nn.Module()
    model.forward = lambda x: x + (1 if poptorch.isRunningOnIpu() else 0)

    on_device = poptorch.inferenceModel(model)(torch.zeros(1))

    assert (on_device.item(), model.forward(torch.zeros(1)).item()) == (1.0, 0.0)
    assert not poptorch.isRunningOnIpu()


def test_tracing_is_known_under_its_other_names(poptorch):
    seen = []
    model = nn.Module()
    model.forward = lambda x: seen.append(
        (poptorch._impl.isDispatchTracing(), poptorch.poptorch_core.isCompilingWithDispatcher())
    )

    poptorch.inferenceModel(model)(torch.zeros(1))

    assert seen == [(True, True)]


@pytest.mark.parametrize("validates", [True, False])
def test_validation_of_distributions_is_off_while_tracing(poptorch, monkeypatch, validates):
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", validates)
    model = nn.Module()
    model.forward = lambda x: torch.distributions.Normal(x, x + 1).mean

    result = poptorch.inferenceModel(model)(torch.ones(1))

    assert result.item() == 1.0
    assert torch.distributions.Distribution._validate_args is validates


# -- modules' own hooks


def test_modules_hooks_run_once_in_the_trace(poptorch, calls):
    model = nn.Sequential(nn.ReLU())
    model[0].register_forward_pre_hook(lambda *_: calls.append("pre"))
    model[0].register_forward_hook(lambda *_: calls.append("post"))
    executor = poptorch.inferenceModel(model)

    executor(torch.ones(1))
    executor(torch.ones(1))

    assert calls == ["pre", "post"]


def test_a_modules_hook_may_change_the_output(poptorch):
    model = nn.Sequential(nn.ReLU())
    model[0].register_forward_hook(lambda _module, _inputs, output: output + 5)

    assert poptorch.inferenceModel(model)(torch.ones(1)).item() == 6.0


# -- functions that libraries replace ------------------------------------------------------------------------------


class Replacement:
    """A library's own `torch.relu` for the device: it also adds one."""

    original = torch.relu
    calls: list = []

    def replace(self):
        self.calls.append("replace")
        torch.relu = lambda x: self.original(x) + 1

    def restore(self):
        self.calls.append("restore")
        torch.relu = self.original


@pytest.fixture
def replacement(poptorch, monkeypatch):
    monkeypatch.setattr(poptorch._OverwriteContextManager, "_subsitution_manager_types", [])
    monkeypatch.setattr(torch, "relu", torch.relu)
    monkeypatch.setattr(Replacement, "original", staticmethod(torch.relu))
    monkeypatch.setattr(Replacement, "calls", [])
    poptorch._OverwriteContextManager.registerSubsitutionManager(Replacement)
    return Replacement


class Relu(nn.Module):
    def __init__(self, fails=False):
        super().__init__()
        self.fails = fails

    def forward(self, x):
        if self.fails:
            raise KeyError("in forward")
        return torch.relu(x)


def test_replaced_functions_are_traced_and_given_back(poptorch, replacement):
    executor = poptorch.inferenceModel(Relu())

    assert executor(torch.tensor([-1.0, 1.0])).tolist() == [1.0, 2.0]
    assert torch.relu(torch.tensor(1.0)).item() == 1.0
    assert replacement.calls == ["replace", "restore"]


def test_a_replacement_registered_twice_happens_once(poptorch, replacement):
    poptorch._OverwriteContextManager.registerSubsitutionManager(replacement)

    poptorch.inferenceModel(Relu())(torch.ones(1))

    assert replacement.calls == ["replace", "restore"]


def test_replaced_functions_are_given_back_after_a_failed_trace(poptorch, replacement):
    with pytest.raises(KeyError, match="in forward"):
        poptorch.inferenceModel(Relu(fails=True))(torch.ones(1))

    assert replacement.calls == ["replace", "restore"]


def test_a_replacement_that_fails_leaves_the_others_restored(poptorch, replacement):
    class Broken:
        def replace(self):
            raise RuntimeError("cannot replace")

    poptorch._OverwriteContextManager.registerSubsitutionManager(Broken)

    with pytest.raises(RuntimeError, match="cannot replace"):
        poptorch.inferenceModel(Relu())(torch.ones(1))

    assert replacement.calls == ["replace", "restore"]
    assert not poptorch.isRunningOnIpu()
