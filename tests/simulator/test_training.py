"""Training on the simulated device against plain PyTorch on the host."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

# each: how to make the optimizer on the host, and on the device
OPTIMIZERS = {
    "SGD": (lambda h, p: h.SGD(p, lr=0.1), lambda d, p: d.SGD(p, lr=0.1)),
    "SGD momentum": (
        lambda h, p: h.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda d, p: d.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    ),
    "SGD nesterov": (
        lambda h, p: h.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda d, p: d.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "SGD combined": (
        lambda h, p: h.SGD(p, lr=0.1, momentum=0.9),
        lambda d, p: d.SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True, velocity_scaling=2.0),
    ),
    "SGD loss scaling": (lambda h, p: h.SGD(p, lr=0.1), lambda d, p: d.SGD(p, lr=0.1, loss_scaling=1024.0)),
    "Adam": (lambda h, p: h.Adam(p, lr=0.1, weight_decay=0.1), lambda d, p: d.Adam(p, lr=0.1, weight_decay=0.1)),
    "AdamW": (lambda h, p: h.AdamW(p, lr=0.1), lambda d, p: d.AdamW(p, lr=0.1)),
    "AdamW no bias correction": (
        lambda h, p: h.AdamW(p, lr=0.1),
        lambda d, p: d.AdamW(p, lr=0.1, bias_correction=False),
    ),
    "RMSprop": (lambda h, p: h.RMSprop(p, lr=0.1), lambda d, p: d.RMSprop(p, lr=0.1)),
    "RMSprop centered": (
        lambda h, p: h.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
        lambda d, p: d.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    ),
}
LAMBS = {"LAMB": True, "LAMB no bias correction": False}


@pytest.fixture
def twins(regression):
    """Give two equal models, one for the device and one for the host."""
    return regression, copy.deepcopy(regression)


def train_on_host(model, optimizer, batch, *, num_steps=10):
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model(*batch)[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_on_device(executor, batch, *, num_steps=10):
    return [executor(*batch)[1].item() for _ in range(num_steps)]


# -- optimizers


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_devices_optimizers_train_as_torchs_do(poptorch, twins, batch, name):
    ours, theirs = twins
    on_host, on_device = OPTIMIZERS[name]

    losses = train_on_device(
        poptorch.trainingModel(ours, optimizer=on_device(poptorch.optim, ours.parameters())), batch
    )

    expected = train_on_host(theirs, on_host(torch.optim, theirs.parameters()), batch)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_torchs_optimizers_are_accepted(poptorch, twins, batch, name):
    ours, theirs = twins
    on_host, _ = OPTIMIZERS[name]

    losses = train_on_device(poptorch.trainingModel(ours, optimizer=on_host(torch.optim, ours.parameters())), batch)

    expected = train_on_host(theirs, on_host(torch.optim, theirs.parameters()), batch)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LAMBS)
def test_lamb_trains_as_its_own_step_on_the_host_does(poptorch, twins, batch, name):
    ours, theirs = twins
    options = {"lr": 0.1, "weight_decay": 0.1, "bias_correction": LAMBS[name]}
    optimizer = poptorch.optim.LAMB(ours.parameters(), **options)

    losses = train_on_device(poptorch.trainingModel(ours, optimizer=optimizer), batch)

    expected = train_on_host(theirs, poptorch.optim.LAMB(theirs.parameters(), **options), batch)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped_to_the_global_norm(poptorch, twins, batch):
    ours, theirs = twins
    optimizer = poptorch.optim.SGD(ours.parameters(), lr=1.0, max_grad_norm=0.1)
    theirs(*batch)[1].backward()
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)

    poptorch.trainingModel(ours, optimizer=optimizer)(*batch)

    moved = theirs.linear.weight - theirs.linear.weight.grad
    torch.testing.assert_close(ours.linear.weight.detach(), moved.detach(), rtol=0, atol=1e-5)


def test_dampening_counts_from_the_first_step(poptorch):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1))
    model.forward = lambda x: poptorch.identity_loss(-model.weight * x, "sum")
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, dampening=0.5)

    poptorch.trainingModel(model, optimizer=optimizer)(torch.ones(1))

    assert model.weight.item() == 0.5


def test_parameter_groups_have_settings_of_their_own(poptorch, regression, batch):
    before = regression.linear.bias.detach().clone()
    groups = [{"params": [regression.linear.weight]}, {"params": [regression.linear.bias], "lr": 0.0}]
    executor = poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(groups, lr=0.1))

    executor(*batch)

    assert torch.equal(regression.linear.bias, before)


def test_a_learning_rate_of_zero_changes_no_bit(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(regression.parameters(), lr=0.0))

    losses = train_on_device(executor, batch, num_steps=50)

    assert len(set(losses)) == 1


@pytest.mark.parametrize("refused", [torch.optim.Adagrad, torch.optim.LBFGS])
def test_other_optimizers_are_refused_by_name_of_those_that_work(poptorch, regression, refused):
    with pytest.raises(AssertionError, match="Unsupported optimizer type. Types supported"):
        poptorch.trainingModel(regression, optimizer=refused(regression.parameters()))


def test_amsgrad_is_refused(poptorch, regression):
    optimizer = torch.optim.Adam(regression.parameters(), amsgrad=True)

    with pytest.raises(ValueError, match="Only non-amsgrad Adam/AdamW optimizers are supported."):
        poptorch.trainingModel(regression, optimizer=optimizer)


def test_a_refused_optimizer_leaves_the_model_unwrapped(poptorch, regression):
    with pytest.raises(AssertionError):
        poptorch.trainingModel(regression, optimizer=torch.optim.Adagrad(regression.parameters()))

    assert type(regression).__name__ == "Regression"


# -- settings reach the device with setOptimizer


def test_a_new_learning_rate_holds_from_set_optimizer_on(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.0)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    before = executor(*batch)[1]

    optimizer.param_groups[0]["lr"] = 0.1
    executor.setOptimizer(optimizer)
    executor(*batch)

    assert executor(*batch)[1] < before


def test_a_new_learning_rate_is_unknown_to_the_device_without_set_optimizer(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.0)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)

    optimizer.param_groups[0]["lr"] = 0.1

    assert torch.equal(executor(*batch)[1], executor(*batch)[1])


def test_a_torch_schedule_reaches_the_device(poptorch, twins, batch):
    ours, theirs = twins
    ours_optimizer = poptorch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    theirs_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (ours_optimizer, theirs_optimizer)]
    executor = poptorch.trainingModel(ours, optimizer=ours_optimizer)

    for _ in range(3):
        executor(*batch)
        ours_optimizer.step()
        schedules[0].step()
        executor.setOptimizer(ours_optimizer)
        train_on_host(theirs, theirs_optimizer, batch, num_steps=1)
        schedules[1].step()

    torch.testing.assert_close(executor(*batch)[1], theirs(*batch)[1].detach())


def test_set_optimizer_copies_no_weights(poptorch, regression, batch):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    executor(*batch)

    optimizer.param_groups[0]["lr"] = 0.2
    executor.setOptimizer(optimizer)

    assert executor._host_weights_version == 0


def test_momentum_survives_a_change_of_the_learning_rate(poptorch, twins, batch):
    ours, theirs = twins
    ours_optimizer = poptorch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    theirs_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(ours, optimizer=ours_optimizer)
    executor(*batch)
    train_on_host(theirs, theirs_optimizer, batch, num_steps=1)

    ours_optimizer.param_groups[0]["lr"] = theirs_optimizer.param_groups[0]["lr"] = 0.01
    executor.setOptimizer(ours_optimizer)

    expected = train_on_host(theirs, theirs_optimizer, batch, num_steps=3)
    torch.testing.assert_close(train_on_device(executor, batch, num_steps=3), expected)


def test_equal_settings_are_not_sent_again(poptorch, regression, batch, debug_log):
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    first = debug_log()

    executor.setOptimizer(optimizer)

    assert "Updating graph optimizer with SGD2" in first
    assert "Updating" not in debug_log()


def test_an_optimizer_can_be_replaced_by_another_of_its_type(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression, optimizer=poptorch.optim.SGD(regression.parameters(), lr=0.0))
    before = executor(*batch)[1]

    executor.setOptimizer(poptorch.optim.SGD(regression.parameters(), lr=0.1))
    executor(*batch)

    assert executor(*batch)[1] < before


def test_an_optimizer_of_another_type_is_refused_once_compiled(poptorch, regression, batch):
    first = poptorch.optim.SGD(regression.parameters(), lr=0.1)
    executor = poptorch.trainingModel(regression, optimizer=first)
    executor(*batch)

    with pytest.raises(poptorch.Error, match="The optimizer type cannot change from SGD2 to ADAM"):
        executor.setOptimizer(poptorch.optim.Adam(regression.parameters()))

    assert executor._optimizer is first


def test_an_optimizer_of_another_type_is_accepted_before_compiling(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)

    executor.setOptimizer(poptorch.optim.Adam(regression.parameters(), lr=0.1))
    executor(*batch)

    assert "Accl2___linear.weight" in executor._optimizer.state_dict()["ipu_state"]


def test_half_accumulators_ask_for_a_running_mean(poptorch, regression):
    options = poptorch.Options()
    optimizer = poptorch.optim.Adam(regression.parameters(), accum_type=torch.float16)

    executor = poptorch.trainingModel(regression, options, optimizer)

    chosen = executor.options.Training.meanAccumulationAndReplicationReductionStrategy
    assert chosen == poptorch.MeanReductionStrategy.Running


def test_half_accumulators_are_refused_once_compiled(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression, optimizer=poptorch.optim.Adam(regression.parameters()))
    executor(*batch)

    with pytest.raises(ValueError, match="but the executable is already compiled"):
        executor.setOptimizer(poptorch.optim.Adam(regression.parameters(), accum_type=torch.float16))


# -- precision


def test_a_half_precision_model_trains(poptorch, regression, batch):
    regression.half()
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1, loss_scaling=128.0)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)

    losses = [executor(batch[0].half(), batch[1].half())[1] for _ in range(5)]

    assert losses[0].dtype == torch.float16
    assert losses[-1] < losses[0]
    assert regression.linear.weight.dtype == torch.float16


def test_half_activations_keep_single_precision_weights(poptorch, batch):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x, target):
            return nn.functional.mse_loss(self.linear(x), target)

    model = Mixed()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))

    losses = [executor(batch[0].half(), batch[1].half()) for _ in range(5)]

    assert losses[-1] < losses[0]
    assert model.linear.weight.dtype == torch.float32


def test_batch_statistics_of_a_half_model_may_stay_single(poptorch):
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2)).half()
    model[1].running_mean = model[1].running_mean.float()
    model[1].running_var = model[1].running_var.float()
    executor = poptorch.inferenceModel(model)

    executor(torch.ones(2, 1, 3).half())
    executor.copyWeightsToHost()

    assert model[1].running_mean.dtype == torch.float32
    assert model[1].running_mean.any()
