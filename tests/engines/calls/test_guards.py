"""A call is made in the host's modes and computes in the device's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.guards import draw_from_stream_of, make_recordable, shut_out_host_modes


@pytest.fixture
def state():
    """Give the state of a device with a stream of its own."""
    graph = capture_step(nn.Linear(2, 1), [torch.ones(1, 2)], mode="inference")
    return replace(DeviceState.for_graph(graph), rng_state=torch.Generator().manual_seed(3).get_state())


def modes():
    return torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_hosts_modes_are_off_inside_and_back_afterwards(inference, autocast):
    with torch.inference_mode(inference), torch.autocast("cpu", enabled=autocast):
        with shut_out_host_modes():
            inside = modes()
        after = modes()

    assert (inside, after) == ((False, False), (inference, autocast))


def test_a_guard_within_a_guard_changes_nothing():
    with torch.inference_mode():
        with shut_out_host_modes():
            with shut_out_host_modes():
                inside = modes()
            between = modes()
        after = modes()

    assert (inside, between, after) == ((False, False), (False, False), (True, False))


def test_a_number_of_threads_holds_inside_only():
    before = torch.get_num_threads()

    with shut_out_host_modes(before + 1):
        inside = torch.get_num_threads()

    assert (inside, torch.get_num_threads()) == (before + 1, before)


def test_a_tensor_of_inference_mode_is_copied_and_no_other():
    with torch.inference_mode():
        frozen = torch.ones(2)
    plain = torch.ones(2)

    assert make_recordable(plain) is plain
    assert not make_recordable(frozen).is_inference()


def test_the_devices_stream_goes_on_and_the_hosts_stays(state):
    host = torch.get_rng_state()

    drawn = []
    for _call in range(2):
        with draw_from_stream_of(state):
            drawn.append(torch.rand(()))

    expected = torch.rand(2, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.stack(drawn), expected)
    assert torch.equal(torch.get_rng_state(), host)


def test_a_call_that_fails_leaves_the_stream_where_it_was(state):
    before = state.rng_state

    with pytest.raises(ZeroDivisionError), draw_from_stream_of(state):
        torch.rand(1 // 0)

    assert torch.equal(state.rng_state, before)
