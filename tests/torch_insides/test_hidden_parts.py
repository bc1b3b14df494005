"""A torch that lacks one private part trains a port as before and says what is lost, or that nothing is captured."""

from __future__ import annotations

from importlib import import_module

import pytest

from porting.torch_insides import SUBJECTS
from porting.torch_insides.parts import write_place
from tests.hardware.fresh_process import FreshProcesses

PLACES = [place for subject in SUBJECTS for place in import_module(f"porting.torch_insides.{subject}").PARTS.places]
# Nothing can be captured without these, and nothing is trained.
NEEDED = {
    "torch:Tensor._make_wrapper_subclass",
    "torch:Tensor._version.__get__",
    "torch._C:DispatchKey.PreDispatch",
    "torch._C:_DisablePythonDispatcher",
    "torch._C:_TorchDispatchModeKey.PROXY",
    "torch._dispatch.python:enable_python_dispatcher",
    "torch._ops:OpOverload",
    "torch._ops:OpOverload._schema",
    "torch._subclasses.fake_tensor:FakeTensor",
    "torch._subclasses.fake_tensor:FakeTensorMode",
    "torch.utils._python_dispatch:TorchDispatchMode",
    "torch.utils._python_dispatch:_disable_current_modes",
    "torch._C:_set_grad_enabled",
}
REPLACED = [place for place in PLACES if place not in NEEDED]
# the others say the same of another part
SAMPLE = {
    "torch._C:_len_torch_function_stack",
    "torch:_foreach_addcdiv_",
    "torch.nn.modules.module:_global_forward_hooks",
    "torch.utils._pytree:tree_leaves",
}

TRAIN = """
import torch
from porting.torch_insides import parts

def hide(place):
    look_up, has_part = parts.look_up, parts.has_part

    def look_up_others(other):
        if other == place:
            raise AttributeError(place)
        return look_up(other)

    def has_other_part(example, name):
        kind = example if isinstance(example, type) else type(example)
        return f"{{kind.__module__}}:{{kind.__qualname__}}.{{name}}" != place and has_part(example, name)

    parts.look_up, parts.has_part = look_up_others, has_other_part

hide({place!r})

from porting import PortOptions, to_ipu

torch.manual_seed(0)
layers = torch.nn.Conv1d(1, 3, 2), torch.nn.Flatten(), torch.nn.BatchNorm1d(9), torch.nn.Linear(9, 4)
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
ported = to_ipu(model, torch.nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(accumulation=2))
x, y = torch.randn(16, 1, 4), torch.arange(16) % 4
print("losses", [float(ported(x, y)[1].mean()) for _ in range(3)])
"""


@pytest.fixture(scope="module")
def run():
    """Give a function that trains without a part in a process of its own and returns all that is written."""
    with FreshProcesses() as processes:
        yield lambda place: processes.run(TRAIN.format(place=place), variables={"PORTING_DEVICE": "sim"})


@pytest.fixture(scope="module")
def losses(run):
    """Give the line that a torch with all its parts writes."""
    return read_losses(run("").output)


def read_losses(output):
    return [line for line in output.splitlines() if line.startswith("losses")]


def sampled(places):
    return [pytest.param(place, marks=[] if place in SAMPLE else pytest.mark.slow) for place in places]


@pytest.mark.parametrize("place", sampled(REPLACED))
def test_a_port_trains_without_a_part_and_says_what_is_lost(run, losses, place):
    ended = run(place)

    assert read_losses(ended.output) == losses
    assert f"no `{write_place(place)}`: " in ended.output


@pytest.mark.slow
@pytest.mark.parametrize("place", sorted(NEEDED))
def test_what_is_needed_to_capture_is_named_where_it_is_gone(run, place):
    ended = run(place)

    assert ended.status == 1
    assert "error[E013]: torch " in ended.output
    assert f"no `{write_place(place)}`" in ended.output


def test_only_parts_that_are_looked_for_are_listed():
    assert set(PLACES) >= NEEDED
