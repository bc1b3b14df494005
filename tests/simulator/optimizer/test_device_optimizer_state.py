"""The optimizer's state of a device under PopTorch's names, read and written."""

from __future__ import annotations

import pytest
import torch

from porting.engines.calls.call_plan import ReplicaGroups
from porting.engines.calls.device_state import DeviceState
from porting.simulator._optimizer.device_optimizer_state import read_entries, write_entries
from porting.simulator.errors import Error


def device(*, factor=None):
    """Make a device with a grouped parameter `w` and an ordinary one `b`."""
    return DeviceState(
        parameters={"w[0]": torch.zeros(3), "w[1]": torch.zeros(3), "b": torch.zeros(2)},
        buffers=[{}],
        slots={
            "w[0]": {"Accl1": torch.full((3,), 1.0), "Step": torch.tensor(5.0)},
            "w[1]": {"Accl1": torch.full((3,), 2.0), "Step": torch.tensor(6.0)},
            "b": {"Accl1": torch.full((2,), 3.0), "Step": torch.tensor(7.0)},
        },
        groups={"w": ReplicaGroups(2, 1)},
        parts={"w": ("w[0]", "w[1]"), "b": ("b",)},
        loss_scale_factor=factor,
    )


def test_groups_have_a_row_each():
    entries = read_entries(device())

    assert {name: entry.tolist() for name, entry in entries.items()} == {
        "Accl1___w": [[1.0] * 3, [2.0] * 3],
        "Step___w": [5.0, 6.0],
        "Accl1___b": [3.0, 3.0],
        "Step___b": 7.0,
    }


def test_the_factor_of_the_loss_scaling_is_part_of_the_state():
    assert read_entries(device(factor=torch.tensor(4.0)))["lossScaleUpdateFactor"].item() == 4.0


def test_what_was_read_does_not_change_with_the_device():
    state = device()
    entries = read_entries(state)

    state.slots["b"]["Accl1"].zero_()

    assert entries["Accl1___b"].tolist() == [3.0, 3.0]


def test_what_is_written_is_read_again():
    state = device(factor=torch.tensor(1.0))
    changed = {name: entry + 10 for name, entry in read_entries(state).items()}

    write_entries(state, changed)

    torch.testing.assert_close(read_entries(state), changed, rtol=0, atol=0)
    assert state.slots["w[1]"]["Accl1"].tolist() == [12.0] * 3


def test_absent_and_unknown_entries_change_nothing():
    state = device()
    before = read_entries(state)

    write_entries(state, {"Accl9___w": torch.zeros(3)})

    torch.testing.assert_close(read_entries(state), before, rtol=0, atol=0)


def test_an_entry_of_another_size_is_refused_before_anything_is_written():
    state = device()
    before = read_entries(state)

    with pytest.raises(Error, match=r"Accl1___w has shape \[3\], the model needs \[2, 3\]"):
        write_entries(state, {"Step___b": torch.tensor(99.0), "Accl1___w": torch.zeros(3)})

    torch.testing.assert_close(read_entries(state), before, rtol=0, atol=0)
