"""State and hyper-parameters under PopART's names, and what loading them changes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from porting.engines.calls.call_plan import ReplicaGroups
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.group_settings import GroupSettings, OptimizerKind
from porting.simulator._optimizer.device_names import apply_loaded, collect_parameters, read_entries, write_entries
from porting.simulator.errors import Error

PLAIN_SGD = GroupSettings(OptimizerKind.SGD2, learning_rate=0.5, weight_decay=0.1, dampening=0.2, loss_scaling=4.0)
SGD1 = dataclasses.replace(PLAIN_SGD, kind=OptimizerKind.SGD1, momentum=0.9, velocity_scaling=8.0)
SGD2 = dataclasses.replace(PLAIN_SGD, momentum=0.9)
ADAM = GroupSettings(OptimizerKind.ADAM, learning_rate=0.5, weight_decay=0.1, beta1=0.8, beta2=0.9, eps=1e-4)


def approx(values):
    return {name: pytest.approx(value) for name, value in values.items()}


def test_sgd_without_momentum_has_two_compound_values():
    assert collect_parameters(PLAIN_SGD, set()) == approx(
        {"scaledLearningRate0": 0.5 * 0.8 / 4, "weightDecayScaleFactor0": 1 - 0.5 * 0.8 * 0.1}
    )


def test_sgd_with_a_combined_accumulator_has_its_own():
    assert collect_parameters(SGD1, set()) == approx(
        {
            "scaledLearningRate1": 0.5 / 8,
            "scaledMomentum1": 0.9,
            "dampeningScaleFactor1": 0.8 * 8 / 4,
            "scaledWeightDecay1": 0.8 * 0.1 * 8,
        }
    )


def test_sgd_with_separate_accumulators_has_its_own():
    assert collect_parameters(SGD2, set()) == approx(
        {
            "scaledLearningRate2": 0.5,
            "scaledMomentum2": 0.9,
            "dampeningScaleFactor2": 0.8 / 4,
            "scaledWeightDecay1": 0.8 * 0.1,
        }
    )


def test_other_optimizers_have_rate_and_decay_and_what_is_variable():
    assert collect_parameters(ADAM, set()) == {"learningRate": 0.5, "weightDecay": 0.1}
    assert collect_parameters(ADAM, {"beta1", "beta2", "eps"}) == {
        "learningRate": 0.5,
        "weightDecay": 0.1,
        "beta1": 0.8,
        "beta2": 0.9,
        "eps": 1e-4,
    }


@pytest.mark.parametrize("settings", [PLAIN_SGD, SGD1, SGD2, ADAM])
def test_loading_the_present_values_changes_nothing(settings):
    variable = {"beta1", "eps"}
    values = {
        f"{name}___specific___w": torch.tensor(value, dtype=torch.float32)
        for name, value in collect_parameters(settings, variable).items()
    }

    assert apply_loaded(
        settings, "w", {**values, "lossScaling_FLOAT": torch.tensor(settings.loss_scaling)}, variable
    ) == (settings)


@pytest.mark.parametrize("settings", [PLAIN_SGD, SGD1, SGD2, ADAM])
def test_loaded_values_are_those_of_the_settings_that_made_them(settings):
    variable = {"beta1", "beta2", "eps"}
    other = dataclasses.replace(settings, learning_rate=0.25, weight_decay=0.3)
    if settings.momentum:
        other = dataclasses.replace(other, momentum=0.5, dampening=0.4)
    if settings.kind == OptimizerKind.ADAM:
        other = dataclasses.replace(other, beta1=0.7, eps=1e-3)
    values = {
        f"{name}___specific___w": torch.tensor(value, dtype=torch.float64)
        for name, value in collect_parameters(other, variable).items()
    }

    loaded = apply_loaded(settings, "w", values, variable)

    for name in ("learning_rate", "weight_decay", "momentum", "dampening", "beta1", "beta2", "eps", "kind"):
        assert getattr(loaded, name) == pytest.approx(getattr(other, name)), name


def test_values_of_other_parameters_are_not_looked_at():
    assert apply_loaded(ADAM, "w", {"learningRate___specific___v": torch.tensor(9.0)}, set()) == ADAM


def test_a_loaded_loss_scaling_holds():
    assert apply_loaded(ADAM, "w", {"lossScaling_FLOAT": torch.tensor(8.0)}, set()).loss_scaling == 8.0


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


def test_a_device_that_ends_hands_its_state_over_and_keeps_what_others_see():
    state = device()
    # as compiled calls bind them: the counts of all parts are one tensor
    counts = torch.tensor([5.0, 6.0, 7.0])
    for part, count in zip(("w[0]", "w[1]", "b"), counts):
        state.slots[part]["Step"] = count
    wide = torch.arange(16.0).reshape(1, 4, 2, 2).contiguous(memory_format=torch.channels_last)
    state.slots["b"]["Accl2"] = wide
    expected = read_entries(state)

    found = read_entries(state, keeps_memory=True)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert counts.tolist() == [5.0, 6.0, 7.0]
    assert found["Accl1___b"].data_ptr() == state.slots["b"]["Accl1"].data_ptr()
    freed = [wide, state.slots["w[0]"]["Accl1"], state.slots["w[1]"]["Accl1"]]
    assert [tensor.untyped_storage().nbytes() for tensor in freed] == [0, 0, 0]


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
