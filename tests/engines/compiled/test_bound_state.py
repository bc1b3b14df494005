"""A state that programs are bound to: their arguments are its tensors, and counts of updates are kept together."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.bound_state import BoundState, Mismatch
from porting.engines.compiled.step_program import build_programs


@pytest.fixture
def graph():
    """Give the graph of a layer that is trained."""
    return capture_step(nn.Linear(3, 2), [torch.ones(4, 3), torch.ones(4, 2)], loss=F.mse_loss, mode="training")


@pytest.fixture
def groups(settings):
    """Give the settings of the one parameter group."""
    return (settings("ADAM"),)


@pytest.fixture
def layout(graph, groups):
    """Give the layout of its program, trained by Adam."""
    return build_programs(graph, BuildRequest(CallPlan(), groups, (("weight", "bias"),))).layout


def test_arguments_are_the_tensors_of_the_state(graph, groups, layout):
    state = DeviceState.for_graph(graph)

    arguments = BoundState(state, layout, groups).find_arguments("step")

    names = [spec.name for spec in layout.arguments["step"]]
    weight = arguments.tensors[names.index("parameter::weight")]
    assert weight.data_ptr() == state.parameters["weight"].data_ptr()
    assert arguments.tensors[arguments.hyper_parameters] is None
    assert [which for _index, which in arguments.inputs] == [0, 1]


def test_all_counts_advance_together(graph, groups, layout):
    state = DeviceState.for_graph(graph)
    bound = BoundState(state, layout, groups)

    bound.advance(3)

    assert bound.read_counts() == [3]
    assert [float(state.slots[name]["Step"]) for name in ("weight", "bias")] == [3.0, 3.0]


def test_counts_that_differ_within_a_group_need_replay(graph, groups, layout):
    state = DeviceState.for_graph(graph)
    bound = BoundState(state, layout, groups)

    state.slots["bias"]["Step"].add_(1)

    with pytest.raises(Mismatch, match="different numbers of updates"):
        bound.read_counts()


def test_slots_that_were_exchanged_are_noticed(graph, groups, layout):
    state = DeviceState.for_graph(graph)
    bound = BoundState(state, layout, groups)
    was_current = bound.is_current(state)

    state.slots["weight"] = {name: slot.clone() for name, slot in state.slots["weight"].items()}

    assert (was_current, bound.is_current(state)) == (True, False)


def test_a_tensor_in_another_memory_format_is_a_mismatch(graph, groups, layout):
    state = DeviceState.for_graph(graph)
    state.parameters["weight"] = torch.zeros(3, 2).t()

    with pytest.raises(Mismatch, match="memory format"):
        BoundState(state, layout, groups)


def test_accumulators_are_empty_when_a_step_begins(graph, groups, layout):
    bound = BoundState(DeviceState.for_graph(graph), layout, groups)

    bound.empty_accumulators()

    assert bound.accumulators == {}
