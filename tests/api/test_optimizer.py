from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import porting.simulator as poptorch
from porting import to_ipu
from porting.adapters import PortingWarning
from porting.diagnostics import PortingError, UnsupportedOptimizerError

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.005, momentum=0.5, centered=True),
}
every_optimizer = pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)

SCHEDULERS = {
    "StepLR": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5),
    "LambdaLR of an absolute rate": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.1 / (1 + step)
    ),
    "OneCycleLR": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=25),
    "CosineAnnealingLR": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
    "CosineAnnealingWarmRestarts": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=4
    ),
    "SequentialLR with a warm-up": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
        ],
        milestones=[5],
    ),
}
# torch 2.6 steps the parts of SequentialLR in a way that it warns of
pytestmark = pytest.mark.filterwarnings("ignore:The epoch parameter in .scheduler.step")
every_scheduler = pytest.mark.parametrize("make_scheduler", SCHEDULERS.values(), ids=SCHEDULERS)


@pytest.fixture
def port(make_model):
    """Port the small model with an optimizer of its parameters; return the ported model and the torch optimizer."""

    def port_with(make_optimizer, **settings):
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, **settings), optimizer

    return port_with


# -- state ------------------------------------------------------------------------------------------------------------


@every_optimizer
def test_the_state_loads_into_the_plain_optimizer_and_training_continues_there(
    make_optimizer, make_model, port, batches, train_plainly, train_ported, same
):
    plain = make_model()
    expected = train_plainly(plain, make_optimizer(plain.parameters()), batches)
    ported, _ = port(make_optimizer)
    train_ported(ported, batches[:10])

    model = make_model(seed=5)
    model.load_state_dict(ported.state_dict())
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(ported.optimizer_state_dict())

    same(train_plainly(model, optimizer, batches[10:]), expected[10:])


@every_optimizer
def test_a_state_from_plain_training_goes_to_the_device(
    make_optimizer, make_model, batches, train_plainly, train_ported, same
):
    plain = make_model()
    expected = train_plainly(plain, make_optimizer(plain.parameters()), batches)
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    train_plainly(model, optimizer, batches[:10])

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)

    same(train_ported(ported, batches[10:]), expected[10:])


@every_optimizer
def test_a_state_loaded_into_the_torch_optimizer_later_reaches_the_device(
    make_optimizer, port, batches, train_ported, same
):
    ported, optimizer = port(make_optimizer)
    train_ported(ported, batches[:5])
    weights, state = ported.state_dict(), ported.optimizer_state_dict()
    expected = train_ported(ported, batches[5:10])

    ported.load_state_dict(weights)
    optimizer.load_state_dict(state)

    same(train_ported(ported, batches[5:10]), expected)


def test_the_torch_optimizer_shows_the_state_of_the_device_and_keeps_it(port, batches, train_ported):
    ported, optimizer = port(OPTIMIZERS["Adam"])
    train_ported(ported, batches[:3])

    state = optimizer.state_dict()["state"]
    ported.destroy()

    assert float(state[0]["step"]) == 3
    torch.testing.assert_close(optimizer.state_dict()["state"], state)


def test_an_optimizer_that_is_ported_again_or_dropped_is_let_go(make_model, batches):
    model = make_model()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    for _ in range(2):
        to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)(*batches[0])
    gone = weakref.ref(optimizer)

    del optimizer
    gc.collect()

    assert gone() is None


def test_loading_a_state_without_momenta_takes_the_momenta_of_the_device_away(
    make_model, port, batches, train_ported, same
):
    make_optimizer = OPTIMIZERS["Adam"]
    fresh_state = make_optimizer(make_model().parameters()).state_dict()
    expected = train_ported(port(make_optimizer)[0], batches[:5])
    ported, optimizer = port(make_optimizer)
    train_ported(ported, batches[:5])

    ported.load_state_dict(make_model().state_dict())
    optimizer.load_state_dict(fresh_state)

    same(train_ported(ported, batches[:5]), expected)


def test_the_state_before_the_first_step_is_that_of_a_fresh_optimizer(port):
    ported, optimizer = port(OPTIMIZERS["Adam"])

    state = ported.optimizer_state_dict()

    assert state == optimizer.state_dict()


def test_the_device_uses_the_very_optimizer_that_is_shown(port, batches):
    ported, _ = port(OPTIMIZERS["AdamW"])

    ported(*batches[0])

    assert type(ported.optimizer) is poptorch.optim.AdamW
    assert ported.device_executor._optimizer is ported.optimizer


# -- settings ---------------------------------------------------------------------------------------------------------


@every_scheduler
def test_every_step_of_a_scheduler_reaches_the_device(
    make_scheduler, make_model, port, batches, train_plainly, train_ported, same
):
    make_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9)  # noqa: E731
    plain = make_model()
    optimizer = make_optimizer(plain.parameters())
    scheduler = make_scheduler(optimizer)
    expected = train_plainly(plain, optimizer, batches, after_step=lambda loss: scheduler.step())

    ported, source = port(make_optimizer)
    bridge = ported.scheduler(make_scheduler(source))

    same(train_ported(ported, batches, after_step=lambda loss: bridge.step()), expected)


def test_a_plateau_scheduler_gets_its_metric_and_reaches_the_device(
    make_model, port, batches, train_plainly, train_ported, same
):
    def make_scheduler(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)

    plain = make_model()
    optimizer = OPTIMIZERS["SGD"](plain.parameters())
    scheduler = make_scheduler(optimizer)
    expected = train_plainly(plain, optimizer, batches, after_step=scheduler.step)

    ported, source = port(OPTIMIZERS["SGD"])
    bridge = ported.scheduler(make_scheduler(source))

    same(train_ported(ported, batches, after_step=bridge.step), expected)
    assert source.param_groups[0]["lr"] < 0.1


def test_a_scheduler_that_nobody_connected_reaches_the_device_all_the_same(
    make_model, port, batches, train_plainly, train_ported, same
):
    plain = make_model()
    optimizer = OPTIMIZERS["SGD"](plain.parameters())
    scheduler = SCHEDULERS["StepLR"](optimizer)
    expected = train_plainly(plain, optimizer, batches, after_step=lambda loss: scheduler.step())
    ported, source = port(OPTIMIZERS["SGD"])
    unconnected = SCHEDULERS["StepLR"](source)

    with warnings.catch_warnings():
        # torch has seen no step on the host
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        losses = train_ported(ported, batches, after_step=lambda loss: unconnected.step())

    same(losses, expected)


def test_a_rate_that_goes_back_to_its_first_value_after_one_call_reaches_the_device(
    make_model, batches, train_plainly, train_ported
):
    def warm_up(optimizer):
        (group,) = optimizer.param_groups
        first, group["lr"] = group["lr"], 1e-4
        return lambda _loss: group.update(lr=first)

    plain = make_model()
    of_plain = torch.optim.SGD(plain.parameters(), lr=0.5)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)

    losses = train_ported(ported, batches, warm_up(optimizer))

    assert losses == pytest.approx(train_plainly(plain, of_plain, batches, warm_up(of_plain)))


def test_a_rate_of_zero_set_on_the_torch_optimizer_stops_training(port, batches, same):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])
    before = ported.state_dict()

    optimizer.param_groups[0]["lr"] = 0.0
    ported(*batches[1])

    same(ported.state_dict()["0.weight"], before["0.weight"])


def test_a_rate_set_on_the_devices_own_optimizer_reaches_the_device(make_model, batches, same):
    model = make_model()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    ported(*batches[0])
    before = ported.state_dict()

    optimizer.param_groups[0]["lr"] = 0.0
    ported(*batches[1])

    same(ported.state_dict()["0.weight"], before["0.weight"])


def test_a_scheduler_of_the_devices_own_optimizer_reaches_the_device(
    make_model, batches, train_plainly, train_ported, same
):
    plain, model = make_model(), make_model()
    optimizer = OPTIMIZERS["SGD"](plain.parameters())
    scheduler = SCHEDULERS["StepLR"](optimizer)
    expected = train_plainly(plain, optimizer, batches, after_step=lambda loss: scheduler.step())

    own = poptorch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=own)
    bridge = ported.scheduler(SCHEDULERS["StepLR"](own))

    same(train_ported(ported, batches, after_step=lambda loss: bridge.step()), expected)


def test_gradients_are_clipped_by_the_devices_own_optimizer(make_model, batches, train_ported, same):
    plain, model = make_model(), make_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    expected = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        optimizer.step()
        expected.append(loss.item())

    clipping = poptorch.optim.SGD(model.parameters(), lr=0.5, max_grad_norm=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=clipping)

    same(train_ported(ported, batches), expected)


def test_parameter_groups_keep_their_own_settings(make_model, batches, train_plainly, train_ported, same):
    def grouped(model):
        return torch.optim.AdamW(
            [
                {"params": model[0].parameters(), "lr": 0.05, "weight_decay": 0.0},
                {"params": [*model[1].parameters(), *model[3].parameters()]},
            ],
            lr=0.001,
        )

    plain, model = make_model(), make_model()
    expected = train_plainly(plain, grouped(plain), batches)

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=grouped(model))

    same(train_ported(ported, batches), expected)
    same(ported.state_dict(), plain.state_dict())


def test_parameters_outside_of_the_optimizer_are_not_trained(make_model, batches, train_ported, same):
    model = make_model()
    optimizer = torch.optim.Adam(model[3].parameters(), lr=0.01)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    train_ported(ported, batches[:3])

    assert torch.equal(ported.state_dict()["0.weight"], before["0.weight"])
    assert not torch.equal(ported.state_dict()["3.weight"], before["3.weight"])


def test_frozen_parameters_are_not_trained(make_model, batches, train_plainly, train_ported, same):
    plain, model = make_model(), make_model()
    for frozen in (plain[0], model[0]):
        frozen.requires_grad_(False)
    expected = train_plainly(plain, OPTIMIZERS["Adam"](plain.parameters()), batches)

    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=OPTIMIZERS["Adam"](model.parameters()))

    same(train_ported(ported, batches), expected)
    assert torch.equal(ported.state_dict()["0.weight"], make_model().state_dict()["0.weight"])


class LearntTemperature(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, logits, label):
        return F.cross_entropy(logits * self.log_temperature.exp(), label)


def test_the_parameters_of_a_loss_are_trained_with_the_models(make_model, batches, train_ported, same):
    plain, plain_loss = make_model(), LearntTemperature()
    optimizer = torch.optim.Adam([*plain.parameters(), *plain_loss.parameters()], lr=0.05)
    expected = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = plain_loss(plain(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    model, own_loss = make_model(), LearntTemperature()
    adam = torch.optim.Adam([*model.parameters(), *own_loss.parameters()], lr=0.05)
    ported = to_ipu(model, own_loss, optimizer=adam)

    same(train_ported(ported, batches), expected)
    same(own_loss.log_temperature.item(), plain_loss.log_temperature.item())
    assert set(ported.state_dict()) == set(plain.state_dict())


def test_without_an_optimizer_the_default_is_announced(make_model, batches, caplog):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    ported.compile(*batches[0])

    assert "the device uses its default, SGD with a learning rate of 0.01" in caplog.text
    assert type(ported.optimizer) is poptorch.optim.SGD


def test_inference_needs_no_optimizer_and_speaks_of_none(make_model, batches, caplog):
    ported = to_ipu(make_model())

    ported.inference()(batches[0][0])

    assert "optimizer" not in caplog.text


# -- what is left of a plain loop -------------------------------------------------------------------------------------


def test_a_step_on_the_host_is_reported_once(port, batches):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])

    with pytest.warns(PortingWarning) as caught:
        [optimizer.step() for _ in range(2)]

    (warning,) = caught
    assert warning.message.finding.code == "O007"
    assert "`optimizer.step()` does nothing" in str(warning.message)


def test_a_step_hook_that_comes_after_the_first_call_is_reported_once(port, batches):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])

    optimizer.register_step_post_hook(lambda *_: None)

    with pytest.warns(PortingWarning, match="O007.*step hooks are not run") as caught:
        [ported(*batch) for batch in batches[1:4]]
    assert len(caught) == 1


@pytest.mark.parametrize("num_calls", [0, 1])
def test_a_step_hook_of_all_optimizers_is_reported(num_calls, port, batches, request):
    ported, _ = port(OPTIMIZERS["SGD"])
    for batch in batches[:num_calls]:
        ported(*batch)

    hook = register_optimizer_step_pre_hook(lambda *_: None)
    request.addfinalizer(hook.remove)

    with pytest.warns(PortingWarning, match="O007.*step hooks are not run"):
        ported(*batches[1])


def test_a_step_hook_in_the_place_of_another_is_reported(port, batches):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    first = optimizer.register_step_post_hook(lambda *_: None)
    with pytest.warns(PortingWarning, match="O007"):
        ported(*batches[0])

    first.remove()
    optimizer.register_step_post_hook(lambda *_: ())

    with pytest.warns(PortingWarning, match="O007"):
        ported(*batches[1])


def test_a_parameter_in_the_place_of_another_is_refused(port, batches):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])

    parameters = optimizer.param_groups[0]["params"]
    parameters[0], parameters[1] = parameters[1], parameters[0]

    with pytest.raises(UnsupportedOptimizerError, match="group 0 of the optimizer has other parameters"):
        ported(*batches[1])


def test_a_parameter_taken_from_the_devices_own_optimizer_is_refused(make_model, batches):
    model = make_model()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    ported(*batches[0])

    del optimizer.param_groups[0]["params"][0]

    with pytest.raises(UnsupportedOptimizerError, match="O005"):
        ported(*batches[1])


def test_zero_grad_of_the_ported_model_is_reported_and_does_nothing(port, batches):
    ported, _ = port(OPTIMIZERS["SGD"])
    ported(*batches[0])

    with pytest.warns(PortingWarning, match="O007"):
        ported.zero_grad()


def test_backward_on_the_loss_says_that_it_was_made_in_the_call(port, batches):
    ported, _ = port(OPTIMIZERS["SGD"])
    _, loss = ported(*batches[0])

    with pytest.raises(PortingError, match="inside the call") as refused:
        loss.backward()
    assert refused.value.code == "O007"


def test_after_destroy_the_torch_optimizer_trains_the_plain_model_without_a_word(port, batches, train_plainly):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])
    ported.destroy()

    losses = train_plainly(ported.model, optimizer, batches[:3])

    assert len(losses) == 3


def test_after_destroy_the_torch_optimizer_takes_a_closure(port, batches):
    ported, optimizer = port(OPTIMIZERS["SGD"])
    ported(*batches[0])
    ported.destroy()

    assert optimizer.step(lambda: torch.tensor(3.0)) == 3.0


def test_an_optimizer_can_be_ported_a_second_time(make_model, batches, train_plainly, train_ported, same):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, OPTIMIZERS["SGD"](plain.parameters()), batches[:6])
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    first = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    losses = train_ported(first, batches[:3])
    first.destroy()

    second = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    losses += train_ported(second, batches[3:6])

    same(losses, expected)


def test_the_optimizer_does_not_keep_the_ported_model_alive(port, batches):
    ported, optimizer = port(OPTIMIZERS["Adam"])
    ported(*batches[0])
    reference = weakref.ref(ported)

    del ported
    gc.collect()

    assert reference() is None
    assert optimizer.param_groups


def test_a_scheduler_of_another_optimizer_is_refused(port, make_model):
    ported, _ = port(OPTIMIZERS["SGD"])
    stranger = SCHEDULERS["StepLR"](OPTIMIZERS["SGD"](make_model().parameters()))

    with pytest.raises(UnsupportedOptimizerError, match="O006"):
        ported.scheduler(stranger)


@pytest.mark.parametrize("factor", [1.0, 0.1])
@every_optimizer
def test_a_rate_set_between_destroy_and_the_next_call_is_the_one_that_is_used(
    make_optimizer, factor, make_model, port, batches, train_plainly, train_ported, same
):
    plain = make_model()
    plain_optimizer = make_optimizer(plain.parameters())
    expected = train_plainly(plain, plain_optimizer, batches[:3])
    ported, optimizer = port(make_optimizer)
    found = train_ported(ported, batches[:3])
    ported.destroy()
    for group in (*plain_optimizer.param_groups, *optimizer.param_groups):
        group["lr"] *= factor

    found += train_ported(ported, batches[3:8])

    same(found, expected + train_plainly(plain, plain_optimizer, batches[3:8]))
