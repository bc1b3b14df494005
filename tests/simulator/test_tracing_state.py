"""While a model is traced everybody can ask for it, and hooks run around it."""

from __future__ import annotations

import pytest

from porting.simulator import tracing_state
from porting.simulator.tracing_state import (
    _OverwriteContextManager,
    isDispatchTracing,
    isRunningOnIpu,
    registerPostCompileHook,
    registerPreCompileHook,
    tracing,
)


def test_tracing_is_known_inside_only_even_after_an_error():
    seen = []

    def fail():
        seen.extend([isRunningOnIpu(), isDispatchTracing()])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tracing():
        fail()

    assert seen == [True, True]
    assert (isRunningOnIpu(), isDispatchTracing()) == (False, False)


def test_hooks_run_around_a_trace_until_they_are_removed():
    said = []
    handles = [
        registerPreCompileHook(lambda: said.append("before")),
        registerPostCompileHook(lambda: said.append("after")),
    ]

    with tracing():
        said.append("trace")
    for handle in handles:
        handle.remove()
    with tracing():
        said.append("another")

    assert said == ["before", "trace", "after", "another"]


@pytest.mark.parametrize("register", [registerPreCompileHook, registerPostCompileHook])
def test_what_cannot_be_called_is_no_hook(register):
    with pytest.raises(RuntimeError, match="must be callable"):
        register("a text")


def test_a_failing_hook_ends_the_trace():
    handle = registerPostCompileHook(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError), tracing():
        pass

    handle.remove()
    assert tracing_state._tracing_depth == 0


def test_replacements_are_taken_away_when_a_later_one_fails(monkeypatch):
    said = []

    class Replaces:
        def replace(self):
            said.append("replaced")

        def restore(self):
            said.append("restored")

    class Fails(Replaces):
        def replace(self):
            raise ValueError

    monkeypatch.setattr(_OverwriteContextManager, "_subsitution_manager_types", [])
    for kind in (Replaces, Replaces, Fails):
        _OverwriteContextManager.registerSubsitutionManager(kind)

    with pytest.raises(ValueError), _OverwriteContextManager():  # noqa: PT011
        pass

    assert said == ["replaced", "restored"]
