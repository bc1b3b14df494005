"""What a scheduler sets on the host is what the device trains with."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from porting.adapters.loss import LossInForward
from porting.adapters.optimizers import to_backend_optimizer
from porting.adapters.schedules import SchedulerBridge
from porting.diagnostics import UnsupportedOptimizerError

NUM_STEPS = 8
X, Y = torch.linspace(-1, 1, 20).reshape(5, 4), torch.arange(5) % 3


def _sequence(optimizer):
    first = lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=3)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[3])


def _chain(optimizer):
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


# Adding a line puts a scheduler through the test of equality.
SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5 ** (epoch + 1)),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=4),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 6),
    "OneCycleLR, which turns momentum too": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=NUM_STEPS + 1),
    "CyclicLR, which turns momentum too": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=3),
    "SequentialLR": _sequence,
    "ChainedScheduler": _chain,
}


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def make_optimizer(model, kind=torch.optim.SGD):
    return kind(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))


def make_executor(model, optimizer, poptorch):
    wrapped = LossInForward(model, F.cross_entropy, backend=poptorch)
    target = to_backend_optimizer(optimizer, wrapped, backend=poptorch)
    return poptorch.trainingModel(wrapped, optimizer=target), target


def bridge_over(scheduler, source, target, executor, **arguments):
    return SchedulerBridge(
        scheduler,
        source=source,
        target=target,
        upload=executor.setOptimizer,
        is_compiled=executor.isCompiled,
        **arguments,
    )


def eager_losses(make_scheduler, kind=torch.optim.SGD):
    model = make_model()
    optimizer = make_optimizer(model, kind)
    scheduler = make_scheduler(optimizer)
    losses = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:The epoch parameter in:UserWarning")
def test_the_device_follows_the_schedule(name, kind, poptorch):
    model = make_model()
    source = make_optimizer(model, kind)
    executor, target = make_executor(model, source, poptorch)
    bridge = bridge_over(SCHEDULERS[name](source), source, target, executor)

    losses = []
    for _ in range(NUM_STEPS):
        losses.append(executor(X, Y)[1])
        bridge.step()

    torch.testing.assert_close(losses, eager_losses(SCHEDULERS[name], kind), rtol=1e-5, atol=1e-6)


def test_a_metric_reaches_a_scheduler_that_waits_for_one(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    bridge = bridge_over(lr_scheduler.ReduceLROnPlateau(source, patience=0), source, target, executor)

    bridge.step(1.0)
    bridge.step(metrics=2.0)

    assert bridge.get_last_lr() == [pytest.approx(0.01)]
    assert target.param_groups[0]["lr"] == pytest.approx(0.01)


def test_what_the_scheduler_set_when_it_was_made_is_uploaded_at_once(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    seen = []

    SchedulerBridge(
        lr_scheduler.LambdaLR(source, lambda epoch: 0.25),
        source=source,
        target=target,
        upload=lambda optimizer: seen.append(optimizer.param_groups[0]["lr"]),
    )

    assert seen == [pytest.approx(0.025)]


def test_nothing_is_uploaded_while_nothing_changes(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    uploads = []
    bridge = SchedulerBridge(lr_scheduler.StepLR(source, 3), source=source, target=target, upload=uploads.append)

    for _ in range(5):
        bridge.step()

    assert len(uploads) == 1


def test_a_scheduler_of_the_devices_own_optimizer_works(poptorch):
    model = make_model()
    wrapped = LossInForward(model, F.cross_entropy, backend=poptorch)
    optimizer = poptorch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS["StepLR"](optimizer)
    executor = poptorch.trainingModel(wrapped, optimizer=optimizer)
    bridge = bridge_over(scheduler, optimizer, optimizer, executor)

    losses = []
    for _ in range(NUM_STEPS):
        losses.append(executor(X, Y)[1])
        bridge.step()

    torch.testing.assert_close(losses, eager_losses(SCHEDULERS["StepLR"]), rtol=1e-5, atol=1e-6)


def test_a_scheduler_of_another_optimizer_is_refused(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)

    with pytest.raises(UnsupportedOptimizerError) as caught:
        bridge_over(lr_scheduler.StepLR(make_optimizer(model), 2), source, target, executor)

    assert caught.value.code == "O006"
    assert caught.value.finding.message == "`StepLR` drives another optimizer than the ported model's"


def test_something_that_is_no_scheduler_is_refused(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)

    with pytest.raises(UnsupportedOptimizerError, match="`function` drives another optimizer"):
        bridge_over(make_model, source, target, executor)


def test_torch_sees_the_steps_that_the_device_made(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    bridge = bridge_over(lr_scheduler.StepLR(source, 2), source, target, executor)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bridge.step()

    assert not hasattr(source, "_opt_called")


def test_torchs_warning_stays_where_nothing_was_trained_yet(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    bridge = bridge_over(lr_scheduler.StepLR(source, 2), source, target, executor, has_trained=lambda: False)

    with pytest.warns(UserWarning, match="before `optimizer.step"):
        bridge.step()


def test_momentum_that_was_compiled_in_cannot_be_scheduled(poptorch):
    model = make_model()
    source = torch.optim.SGD(model.parameters(), lr=0.1)
    executor, target = make_executor(model, source, poptorch)
    executor(X, Y)

    with pytest.raises(UnsupportedOptimizerError, match="`momentum` changes"):
        bridge_over(lr_scheduler.OneCycleLR(source, 0.2, total_steps=9), source, target, executor)


def test_a_saved_schedule_goes_on(poptorch):
    model = make_model()
    source = make_optimizer(model)
    executor, target = make_executor(model, source, poptorch)
    bridge = bridge_over(lr_scheduler.StepLR(source, 2), source, target, executor)
    bridge.step()
    saved = bridge.state_dict()
    other = bridge_over(lr_scheduler.StepLR(source, 2), source, target, executor)

    other.load_state_dict(saved)
    other.step()

    assert other.get_last_lr() == [pytest.approx(0.01)]
    assert target.param_groups[0]["lr"] == pytest.approx(0.01)
