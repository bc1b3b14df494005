"""Optimizers, gradient clipping and schedulers on the hardware path train as plain PyTorch does."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from tests.hardware.side_by_side import (
    adam,
    assert_code,
    assert_same_weights,
    assert_trains_like_plain,
    batches,
    equal,
    momentum_sgd,
    one_batch,
    port,
    sgd,
    small_net,
    train_plainly,
    train_ported,
)


def grouped_sgd(model):
    return optim.SGD([{"params": model[0].parameters(), "lr": 0.3}, {"params": model[-1].parameters()}], 0.1, 0.5)


def grouped_adam(model):
    """Make groups with a setting each, and a whole number as learning rate."""
    groups = [{"params": model[0].parameters(), "weight_decay": 0.1}, {"params": model[-1].parameters()}]
    return optim.Adam(groups, lr=1)


OPTIMIZERS = {
    "SGD": sgd,
    "SGD with momentum": momentum_sgd,
    "SGD with momentum and weight decay": lambda m: optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=0.01),
    "SGD with Nesterov's momentum": lambda m: optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "Adam": adam,
    "Adam with all settings": lambda m: optim.Adam(
        m.parameters(), lr=0.01, weight_decay=0.1, betas=(0.8, 0.9), eps=1e-6
    ),
    "AdamW": lambda m: optim.AdamW(m.parameters(), lr=0.01),
    "AdamW, foreach": lambda m: optim.AdamW(m.parameters(), lr=0.01, foreach=True),
    "RMSprop": lambda m: optim.RMSprop(m.parameters(), lr=0.01),
    "RMSprop, centered, with momentum": lambda m: optim.RMSprop(m.parameters(), lr=0.01, momentum=0.9, centered=True),
    "SGD with groups": grouped_sgd,
    "Adam with groups": grouped_adam,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_trains_like_plain(name):
    assert_trains_like_plain(OPTIMIZERS[name])


def test_the_ten_lines_of_the_readme_train():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4))
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optim.Adam(model.parameters(), lr=0.01))
    x = torch.randn(64, 4)

    for _step in range(30):
        _output, loss = ported(x, x.argmax(dim=1))
    predicted = ported.inference()(x).argmax(dim=1)

    assert loss < 1.2
    assert predicted.shape == (64,)
    assert "IPU (hardware version" in str(ported.report())


def test_without_an_optimizer_the_default_trains():
    ported = port(small_net(), nn.CrossEntropyLoss())

    assert len(train_ported(ported, batches())) == 4


def test_batch_norm_keeps_the_statistics_of_plain_pytorch():
    assert_trains_like_plain(sgd, norm=True)


def test_dropout_leaves_the_hosts_random_stream_alone_and_drops_nothing_in_inference():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), seed=3)
    x, y = one_batch()
    before = torch.get_rng_state()

    ported(x, y)

    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(ported.inference()(x), ported.inference()(x))


# -- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW], ids=lambda kind: kind.__name__)
def test_max_grad_norm_is_clip_grad_norm(kind):
    assert_trains_like_plain(lambda model: kind(model.parameters(), lr=0.1), clip=0.1)


def test_max_grad_norm_with_rmsprop_is_o002():
    model = small_net()
    optimizer = optim.RMSprop(model.parameters())

    assert_code("O002", lambda: port(model, nn.CrossEntropyLoss(), optimizer=optimizer, max_grad_norm=1.0))


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("O002", lambda model: optim.Adam(model.parameters(), amsgrad=True)),
        ("O002", lambda model: optim.SGD(model.parameters(), lr=1, maximize=True)),
        ("O001", lambda model: optim.Adagrad(model.parameters())),
    ],
    ids=["amsgrad", "maximize", "Adagrad"],
)
def test_what_the_device_has_no_update_for_is_refused(code, make):
    model = small_net()

    assert_code(code, lambda: port(model, nn.MSELoss(), optimizer=make(model)))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SGD", {"lr": 0.1, "loss_scaling": 8.0, "use_combined_accum": True}),
        ("AdamW", {"lr": 0.01, "accum_type": torch.float16, "bias_correction": False}),
        ("LAMB", {"lr": 0.01}),
    ],
)
def test_an_optimizer_of_poptorch_trains_and_gives_its_state(name, settings):
    import poptorch

    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=getattr(poptorch.optim, name)(model.parameters(), **settings))

    _output, loss = ported(*one_batch())

    assert torch.isfinite(loss)
    assert ported.optimizer_state_dict()
    ported.destroy()


def test_settings_changed_between_calls_reach_the_device():
    model, twin = small_net(), small_net()
    optimizer, of_twin = (optim.SGD(m.parameters(), 0.1, 0.9, weight_decay=0.1) for m in (model, twin))
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    expected, found = [], []

    for step, batch in enumerate(batches()):
        for group in (optimizer.param_groups[0], of_twin.param_groups[0]):
            group.update(lr=0.1 / (step + 1), weight_decay=0.1 * (step + 1))
        expected += train_plainly(twin, of_twin, [batch])
        found += train_ported(ported, [batch])

    assert found == equal(expected)
    assert_same_weights(model, twin)


def test_a_constant_that_changes_after_compilation_is_o002():
    model = small_net()
    optimizer = sgd(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    ported(*one_batch())

    optimizer.param_groups[0]["momentum"] = 0.9

    assert_code("O002", lambda: ported(*one_batch()))


# -- schedulers ------------------------------------------------------------------------------------------------------

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
    "OneCycleLR, which moves momentum": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.StepLR(o, 1)], [2]),
}


# SequentialLR of torch 2.0 calls its schedulers in a way that torch 2.0 warns of
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_followed(name):
    data, make = batches(5), SCHEDULERS[name]
    model, twin = small_net(), small_net()
    optimizer, of_twin = momentum_sgd(model), momentum_sgd(twin)
    scheduler, expected = make(optimizer), train_plainly(twin, of_twin, data, scheduler=make(of_twin))
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    bridge = ported.scheduler(scheduler)
    found = []

    for batch in data:
        found += train_ported(ported, [batch])
        bridge.step()

    assert found == equal(expected)
    assert_same_weights(model, twin)


def test_a_plateau_lowers_the_learning_rate():
    model = small_net()
    optimizer = sgd(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    bridge = ported.scheduler(lr_scheduler.ReduceLROnPlateau(optimizer, patience=0))

    for _step in range(3):
        ported(*one_batch())
        bridge.step(1.0)

    assert ported.optimizer.param_groups[0]["lr"] < 0.1


# -- warnings --------------------------------------------------------------------------------------------------------


def test_poptorch_warns_of_no_attribute_of_the_optimizer(vendor_warnings):
    model = small_net()
    optimizer = adam(model)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    bridge = ported.scheduler(scheduler)

    for batch in batches():
        ported(*batch)
        bridge.step()
    ported.inference()(one_batch()[0])
    ported.state_dict()
    ported.destroy()

    assert vendor_warnings == []


def test_poptorch_has_no_tensor_of_the_loss_to_force_to_an_ipu(vendor_warnings):
    port(small_net(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])))(*one_batch())

    assert vendor_warnings == []


def test_training_and_inference_bring_no_warning_of_torch():
    ported = port(small_net(), nn.CrossEntropyLoss())

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ported(*one_batch())
        ported.inference()(one_batch()[0])

    assert [str(warning.message) for warning in said] == []
