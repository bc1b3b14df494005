"""The optimizer's state: where it lives, when it moves, and that it survives."""

from __future__ import annotations

import copy
import gc
import io
import weakref

import pytest
import torch

import porting.simulator as simulator

PLAIN_KEYS = {"state", "param_groups"}


@pytest.fixture
def adam(poptorch, regression):
    """Give an Adam of the regression's parameters."""
    return poptorch.optim.Adam(regression.parameters(), lr=0.1)


@pytest.fixture
def executor(poptorch, regression, adam):
    """Give a training executor with the optimizer `adam`."""
    return poptorch.trainingModel(regression, optimizer=adam)


def assert_states_equal(ours, theirs):
    torch.testing.assert_close(ours["ipu_state"], theirs["ipu_state"], rtol=0, atol=0)
    torch.testing.assert_close(ours["ipu_param"], theirs["ipu_param"], rtol=0, atol=0)


# -- of executors that are gone


def test_an_optimizer_keeps_no_weights_of_an_executor_that_is_gone(regression, batch):
    adam = simulator.optim.Adam(regression.parameters(), lr=0.1)
    executor = simulator.trainingModel(regression, optimizer=adam)
    executor(*batch)
    executor.copyWeightsToHost()
    device = weakref.ref(executor.device_session.compiled.state)

    del executor
    gc.collect()

    assert device() is None
    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 1
    assert "state_dict" not in vars(adam)


def test_an_optimizer_with_its_state_lets_go_of_an_executor_that_is_gone(regression, batch):
    adam = simulator.optim.Adam(regression.parameters(), lr=0.1)
    executor = simulator.trainingModel(regression, optimizer=adam)
    executor(*batch)
    state = adam.state_dict()

    del executor
    gc.collect()

    assert "state_dict" not in vars(adam)
    assert_states_equal(adam.state_dict(), state)


# -- content


def test_there_is_no_state_before_compiling(executor, adam):
    state = adam.state_dict()

    assert state["ipu_state"] is state["ipu_param"] is None


def test_there_is_state_after_compiling(executor, adam, batch):
    executor.compile(*batch)

    state = adam.state_dict()

    assert {type(value) for part in ("ipu_state", "ipu_param") for value in state[part].values()} == {torch.Tensor}
    assert PLAIN_KEYS < set(state)


def test_adams_state_has_moments_and_steps_by_parameter(executor, adam, batch):
    executor(*batch)

    state = adam.state_dict()["ipu_state"]

    names = ["linear.weight", "linear.bias"]
    assert set(state) == {f"{slot}___{name}" for slot in ("Accl1", "Accl2", "Step") for name in names}
    assert state["Step___linear.weight"].item() == 1


def test_adams_settings_are_listed_by_parameter(executor, adam, batch):
    executor.compile(*batch)

    settings = adam.state_dict()["ipu_param"]

    assert torch.allclose(settings["learningRate___specific___linear.weight"], torch.tensor(0.1))
    assert torch.allclose(settings["weightDecay___specific___linear.bias"], torch.tensor(0.0))
    assert settings["lossScaling_FLOAT"] == 1.0


def test_sgds_settings_are_scaled(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.5, weight_decay=0.1, dampening=0.2, loss_scaling=4.0)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    executor.compile(*batch)

    settings = optimizer.state_dict()["ipu_param"]

    assert torch.allclose(settings["scaledLearningRate0___specific___linear.weight"], torch.tensor(0.5 * 0.8 / 4))
    assert torch.allclose(settings["weightDecayScaleFactor0___specific___linear.weight"], torch.tensor(1 - 0.4 * 0.1))
    assert settings["lossScaling_FLOAT"] == 4.0


def stems_of(poptorch, model, batch, optimizer):
    poptorch.trainingModel(model, optimizer=optimizer).compile(*batch)
    names = optimizer.state_dict()["ipu_param"]
    return {name.split("___specific___")[0] for name in names if name.endswith("linear.weight")}


def test_only_settings_that_may_change_are_listed(poptorch, regression, batch):
    optimizer = poptorch.optim.Adam(regression.parameters(), lr=0.1)

    assert stems_of(poptorch, regression, batch, optimizer) == {"learningRate", "weightDecay"}


def test_settings_that_were_passed_are_listed(poptorch, regression, batch):
    optimizer = poptorch.optim.Adam(regression.parameters(), lr=0.1, betas=(0.8, 0.9), eps=1e-6)

    assert stems_of(poptorch, regression, batch, optimizer) == {"learningRate", "weightDecay", "beta1", "beta2", "eps"}


@pytest.mark.parametrize(("is_combined", "form"), [(True, 1), (False, 2)])
def test_sgd_with_momentum_has_settings_of_its_own(poptorch, regression, batch, is_combined, form):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1, momentum=0.9, use_combined_accum=is_combined)

    found = stems_of(poptorch, regression, batch, optimizer)

    assert {f"scaledLearningRate{form}", f"scaledMomentum{form}"} <= found


def test_sgd_without_momentum_has_settings_but_no_state(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.5)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    executor.compile(*batch)

    state = optimizer.state_dict()

    assert state["ipu_state"] == {}
    assert state["ipu_param"]


def test_a_step_changes_the_state(executor, adam, batch):
    executor.compile(*batch)
    before = adam.state_dict()["ipu_state"]

    executor(*batch)

    assert all(not torch.equal(value, before[key]) for key, value in adam.state_dict()["ipu_state"].items())


def test_a_state_that_was_read_does_not_change_with_the_next_step(executor, adam, batch):
    executor(*batch)
    state = adam.state_dict()["ipu_state"]

    executor(*batch)

    assert state["Step___linear.weight"].item() == 1


def test_torchs_optimizers_show_no_device_state(poptorch, regression, batch):
    optimizer = torch.optim.Adam(regression.parameters())
    poptorch.trainingModel(regression, optimizer=optimizer)(*batch)

    assert set(optimizer.state_dict()) == PLAIN_KEYS
    assert optimizer.state_dict()["state"] == {}


# -- caching


def test_a_state_is_read_once(executor, adam, batch, debug_log):
    executor(*batch)
    debug_log()

    adam.state_dict()
    first = debug_log()
    adam.state_dict()
    second = debug_log()

    assert "Writing optimiser state tensors from IPU to host." in first
    assert "Using cached optimiser state dict" not in first
    assert "Writing optimiser state tensors from IPU to host." not in second
    assert "Using cached optimiser state dict" in second


def test_a_state_is_not_both_newer_on_host_and_device(executor, adam, batch):
    executor(*batch)
    adam.load_state_dict(adam.state_dict())

    loaded = (adam.ipu_state_is_dirty, adam.host_state_is_dirty)
    executor(*batch)

    assert loaded == (True, False)
    assert (adam.ipu_state_is_dirty, adam.host_state_is_dirty) == (False, True)


# -- loading


def test_a_loaded_state_is_returned_as_it_is(executor, adam, batch):
    executor(*batch)
    state = adam.state_dict()
    del state["ipu_state"]["Accl1___linear.bias"]

    adam.load_state_dict(state)

    assert adam.state_dict()["ipu_state"] is state["ipu_state"]


def test_a_loaded_state_is_sent_with_the_next_run(executor, adam, batch, debug_log):
    executor(*batch)
    state = copy.deepcopy(adam.state_dict())
    state["ipu_state"]["Step___linear.weight"].fill_(41)
    adam.load_state_dict(state)
    debug_log()

    executor(*batch)

    assert "Writing optimiser state tensors from host to IPU memory." in debug_log()
    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 42


def test_entries_that_a_loaded_state_lacks_keep_the_devices_value(executor, adam, batch):
    executor(*batch)
    state = copy.deepcopy(adam.state_dict())
    del state["ipu_state"]["Step___linear.bias"]
    adam.load_state_dict(state)

    executor(*batch)

    assert adam.state_dict()["ipu_state"]["Step___linear.bias"].item() == 2


def test_trained_weights_are_kept_when_a_state_is_sent(executor, adam, batch):
    losses = [executor(*batch)[1] for _ in range(3)]
    adam.load_state_dict(copy.deepcopy(adam.state_dict()))

    loss = executor(*batch)[1]

    assert loss < losses[-1]


def test_a_state_that_was_read_follows_new_settings(executor, adam, batch, debug_log):
    executor(*batch)
    before = adam.state_dict()
    rate = "learningRate___specific___linear.weight"
    debug_log()
    adam.param_groups[0]["lr"] = 0.5

    executor.setOptimizer(adam)

    assert adam.state_dict()["ipu_param"][rate].item() == 0.5
    assert before["ipu_param"][rate].item() == pytest.approx(0.1)
    assert "from IPU" not in debug_log()


def test_loaded_settings_hold_until_others_are_set(executor, adam, batch):
    executor.compile(*batch)
    state = copy.deepcopy(adam.state_dict())
    for key in state["ipu_param"]:
        state["ipu_param"][key].fill_(1.0 if key.startswith("loss") else 0.0)
    adam.load_state_dict(state)
    before = executor(*batch)[1]

    unchanged = executor(*batch)[1]
    adam.param_groups[0]["lr"] = 0.2
    executor.setOptimizer(adam)
    executor(*batch)

    assert torch.equal(unchanged, before)
    assert executor(*batch)[1] < before


def without_learning(state):
    state = copy.deepcopy(state)
    for key, value in state["ipu_param"].items():
        value.fill_(1.0 if key.startswith("loss") else 0.0)
    return state


def test_settings_changed_after_loading_take_the_place_of_the_loaded_ones(executor, adam, batch):
    before = executor(*batch)[1]
    adam.load_state_dict(without_learning(adam.state_dict()))
    adam.param_groups[0]["lr"] = 0.2

    executor.setOptimizer(adam)
    executor(*batch)

    assert executor(*batch)[1] < before
    assert adam.state_dict()["ipu_param"]["learningRate___specific___linear.bias"].item() == pytest.approx(0.2)


def test_loaded_settings_survive_giving_the_device_free(executor, adam, batch):
    executor.compile(*batch)
    adam.load_state_dict(without_learning(adam.state_dict()))
    before = executor(*batch)[1]

    executor.detachFromDevice()
    executor(*batch)

    assert torch.equal(executor(*batch)[1], before)


def test_a_state_of_other_shapes_is_refused(executor, adam, batch):
    executor(*batch)
    state = copy.deepcopy(adam.state_dict())
    state["ipu_state"]["Accl1___linear.weight"] = torch.zeros(7)
    adam.load_state_dict(state)

    with pytest.raises(Exception, match=r"Accl1___linear.weight has shape \[7\], the model needs \[2, 3\]"):
        executor(*batch)


def test_torchs_states_cannot_be_loaded(adam):
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU."):
        adam.load_state_dict({"state": {}, "param_groups": adam.param_groups})


# -- surviving


def rebuild(poptorch, model, state):
    """Return a new executor and optimizer of `model`, with a state that went through a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(torch.load(file))
    return poptorch.trainingModel(model, optimizer=optimizer), optimizer


def test_a_state_survives_building_everything_anew(poptorch, regression, executor, adam, batch):
    executor(*batch)
    state = copy.deepcopy(adam.state_dict())
    executor.destroy()

    rebuilt, optimizer = rebuild(poptorch, regression, state)
    rebuilt.compile(*batch)

    assert_states_equal(optimizer.state_dict(), state)


def test_training_goes_on_as_if_nothing_had_been_built_anew(poptorch, regression, adam, batch):
    twin = copy.deepcopy(regression)
    through = poptorch.trainingModel(twin, optimizer=poptorch.optim.Adam(twin.parameters(), lr=0.1))
    expected = [through(*batch)[1].item() for _ in range(4)]
    executor = poptorch.trainingModel(regression, optimizer=adam)
    losses = [executor(*batch)[1].item() for _ in range(2)]
    executor.destroy()

    rebuilt, _ = rebuild(poptorch, regression, adam.state_dict())
    losses += [rebuilt(*batch)[1].item() for _ in range(2)]

    assert losses == expected


def test_the_same_optimizer_goes_on_in_a_new_executor(poptorch, regression, executor, adam, batch):
    executor(*batch)
    executor.destroy()

    again = poptorch.trainingModel(regression, optimizer=adam)
    again(*batch)

    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 2


def test_a_new_executor_takes_the_present_settings_of_an_old_optimizer(poptorch, regression, executor, adam, batch):
    executor(*batch)
    executor.destroy()

    adam.param_groups[0]["lr"] = 0.0
    again = poptorch.trainingModel(regression, optimizer=adam)

    assert torch.equal(again(*batch)[1], again(*batch)[1])


def test_the_state_is_on_the_host_after_destroy(executor, adam, batch):
    executor(*batch)

    executor.destroy()

    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 1


def test_a_replaced_optimizer_keeps_the_state_of_its_time(poptorch, regression, executor, adam, batch):
    executor(*batch)

    executor.setOptimizer(poptorch.optim.Adam(regression.parameters(), lr=0.1))
    executor(*batch)

    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 1


def test_a_replacement_goes_on_from_the_devices_state(poptorch, regression, executor, adam, batch):
    executor(*batch)
    other = poptorch.optim.Adam(regression.parameters(), lr=0.1)

    executor.setOptimizer(other)
    executor(*batch)

    assert other.state_dict()["ipu_state"]["Step___linear.weight"].item() == 2


def test_a_replacements_loaded_state_reaches_the_device(poptorch, regression, executor, adam, batch):
    executor(*batch)
    other = poptorch.optim.Adam(regression.parameters(), lr=0.1)
    state = copy.deepcopy(adam.state_dict())
    state["ipu_state"]["Step___linear.weight"].fill_(41)
    other.load_state_dict(state)

    executor.setOptimizer(other)
    executor(*batch)

    assert other.state_dict()["ipu_state"]["Step___linear.weight"].item() == 42


def test_copying_weights_to_the_device_keeps_the_optimizers_state(executor, adam, batch):
    executor(*batch)

    executor.copyWeightsToDevice()
    executor(*batch)

    assert adam.state_dict()["ipu_state"]["Step___linear.weight"].item() == 2


def test_a_copied_optimizer_is_not_bound_to_the_executor(executor, adam, batch):
    executor(*batch)
    adam.state_dict()

    copied = copy.copy(adam)
    executor(*batch)

    assert copied.state_dict()["ipu_state"]["Step___linear.weight"].item() == 1
