"""torch's compiler is not loaded for making an optimizer, and works as ever once somebody loads it."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

from porting.support import compiler_loading


def said_by(program: str) -> str:
    """Run `program` in a fresh process and return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MAKE_OPTIMIZER = """
import sys, torch
from porting.support.compiler_loading import optimizers_load_compiler_late
optimizers_load_compiler_late()
weight = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1.0)
"""


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_an_optimizer_is_made_without_the_compiler():
    program = """
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
print("torch._dynamo" in sys.modules)
"""
    assert said_by(MAKE_OPTIMIZER + program) == "False"


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_its_step_trains_as_ever():
    program = """
weight.sum().backward()
optimizer.step()
print(weight.tolist())
"""
    assert said_by(MAKE_OPTIMIZER + program) == "[0.0, 0.0]"


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_compiled_function_still_passes_over_what_torch_keeps_from_the_compiler():
    program = """
import torch._dynamo
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
optimizer.add_param_group({"params": [torch.ones(1, requires_grad=True)]})
function = torch.optim.Optimizer.add_param_group.__wrapped__
print(len(optimizer.param_groups), function.__dict__["__dynamo_disable"].__module__)
"""
    assert said_by(MAKE_OPTIMIZER + program).split() == ["2.0", "2", "torch._dynamo.eval_frame"]


@pytest.mark.usefixtures("programs_have_torch")
def test_importing_the_ported_world_is_enough():
    program = """
import sys, torch
from porting import to_ipu
torch.optim.Adam([torch.ones(1, requires_grad=True)])
print("torch._dynamo" in sys.modules)
"""
    assert said_by(program) == "False"


def wrapped_as_torch_does(function, loaded):
    """Wrap `function` as torch does, with a list in the place of loading its compiler."""

    @functools.wraps(function)
    def inner(*args):
        kept = getattr(function, "__dynamo_disable", None)
        if kept is None:
            loaded.append(True)
            kept = function
            setattr(function, "__dynamo_disable", kept)  # noqa: B010 - the name would be another inside of a class
        return kept(*args)

    return inner


@pytest.fixture
def compiler(monkeypatch):
    """Let `is_compiler_loaded` say what the test says."""
    state = {"is_loaded": False}
    monkeypatch.setattr(compiler_loading, "is_compiler_loaded", lambda: state["is_loaded"])
    return state


def test_the_function_runs_by_itself_until_the_compiler_is_there(compiler):
    loaded = []
    wrapper = wrapped_as_torch_does(lambda x: x + 1, loaded)

    assert compiler_loading.load_compiler_late(wrapper)
    assert (wrapper(1), loaded) == (2, [])

    compiler["is_loaded"] = True
    assert (wrapper(1), loaded) == (2, [True])


def test_nothing_is_changed_when_the_compiler_is_there_already(compiler):
    compiler["is_loaded"] = True
    wrapper = wrapped_as_torch_does(lambda x: x + 1, [])

    assert not compiler_loading.load_compiler_late(wrapper)
    assert not wrapper.__wrapped__.__dict__


@pytest.mark.parametrize("other", [None, len, lambda x: x, functools.partial(print)])
def test_other_functions_are_left_alone(compiler, other):
    assert not compiler_loading.load_compiler_late(other)
