"""Ignite on a device: the update function, the evaluator, and Ignite's own handlers around them."""

from __future__ import annotations

import sys

import pytest
import torch
from ignite.contrib.handlers import ProgressBar  # the place that published programs import it from
from ignite.engine import Engine, Events
from ignite.engine import create_supervised_evaluator as plain_evaluator
from ignite.engine import create_supervised_trainer as plain_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, LinearCyclicalScheduler
from ignite.metrics import Accuracy, Loss
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import BatchError, DeviceError, OptionError, PortingError
from porting.integrations import DeviceCalls
from porting.integrations import ignite as on_device
from porting.integrations.ignite import create_supervised_evaluator, create_supervised_trainer

LOSS = nn.CrossEntropyLoss()


@pytest.fixture(autouse=True)
def _on_the_simulator(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "sim")


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def make_batches(*rows):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)) for n in rows]


def run(trainer, batches, epochs=4):
    losses = []
    handle = trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.run(batches, max_epochs=epochs)
    handle.remove()
    return losses


def train_plainly(batches, **settings):
    model = make_model()
    return run(plain_trainer(model, make_optimizer(model), LOSS, **settings), batches)


def make_ported(**settings):
    model = make_model()
    optimizer = make_optimizer(model)
    return to_ipu(model, LOSS, optimizer=optimizer, device="sim", **settings), optimizer


def test_a_plain_model_trains_as_on_the_cpu_with_ragged_epochs():
    model, batches = make_model(), make_batches(6, 6, 6, 6, 2)

    trainer = create_supervised_trainer(model, make_optimizer(model), LOSS, device="cpu")
    losses = run(trainer, batches)

    assert len(losses) == 20
    assert losses == train_plainly(batches)
    assert trainer.device_calls.list_device_modules() == ["Sequential"]


def test_a_plain_model_accumulates_gradients_as_on_the_cpu():
    model, batches = make_model(), make_batches(*[6] * 6)

    losses = run(create_supervised_trainer(model, make_optimizer(model), LOSS, gradient_accumulation_steps=3), batches)

    assert losses == train_plainly(batches, gradient_accumulation_steps=3)


def test_a_port_that_makes_the_steps_trains_as_on_the_cpu():
    ported, optimizer = make_ported()
    batches = make_batches(*[6] * 5)

    losses = run(create_supervised_trainer(ported, optimizer, LOSS), batches)

    assert losses == pytest.approx(train_plainly(batches), rel=1e-6)
    assert ported.report().num_training_calls == 20


def test_an_update_function_of_ones_own_needs_one_line():
    batches = make_batches(*[6] * 5)
    model = make_model()
    DeviceCalls(model).install()
    optimizer = make_optimizer(model)

    def train_step(_engine, batch):
        model.train()
        optimizer.zero_grad()
        loss = LOSS(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    assert run(Engine(train_step), batches) == train_plainly(batches)


def test_a_port_of_a_host_loop_is_taken_as_it_is():
    model, batches = make_model(), make_batches(*[6] * 5)
    ported = to_ipu(model, loop="host", device="sim")

    losses = run(create_supervised_trainer(ported, make_optimizer(model), LOSS), batches)

    assert losses == train_plainly(batches)


@pytest.mark.parametrize("kind", ["plain", "port"])
def test_metrics_after_each_epoch_are_those_on_the_cpu(kind):
    batches, tests = make_batches(*[6] * 5), make_batches(8, 8, 3)
    ported, optimizer = make_ported()
    model = ported if kind == "port" else make_model()
    trainer = create_supervised_trainer(model, optimizer if kind == "port" else make_optimizer(model), LOSS)
    plain = make_model()
    expected_trainer = plain_trainer(plain, make_optimizer(plain), LOSS)
    found = []
    for each, evaluator in (
        (trainer, create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(LOSS)})),
        (expected_trainer, plain_evaluator(plain, {"accuracy": Accuracy(), "loss": Loss(LOSS)})),
    ):

        @each.on(Events.EPOCH_COMPLETED)
        def evaluate(_engine, evaluator=evaluator):
            evaluator.run(tests)
            found.append(dict(evaluator.state.metrics))

        each.run(batches, max_epochs=3)

    for measured, expected in zip(found[:3], found[3:]):
        assert measured["accuracy"] == expected["accuracy"]
        assert measured["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize("kind", ["plain", "port"])
def test_a_checkpoint_of_model_optimizer_and_trainer_is_resumed_exactly(kind, tmp_path):
    def make_parts():
        ported, optimizer = make_ported()
        model = ported if kind == "port" else ported.model
        trainer = create_supervised_trainer(model, optimizer, LOSS)
        return trainer, {"model": model, "optimizer": optimizer, "trainer": trainer}

    batches = make_batches(*[6] * 5)
    trainer, parts = make_parts()
    saver = Checkpoint(parts, DiskSaver(str(tmp_path)), n_saved=None)
    trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), saver)
    whole = run(trainer, batches)

    resumed, parts = make_parts()
    (path,) = tmp_path.glob("*.pt")
    Checkpoint.load_objects(parts, torch.load(path, weights_only=False))

    assert run(resumed, batches) == whole[10:]


@pytest.mark.parametrize("kind", ["plain", "port"])
def test_schedules_of_ignite_and_of_torch_reach_the_device(kind):
    batches = make_batches(*[6] * 5)
    ported, optimizer = make_ported()
    plain = make_model()
    plain_optimizer = make_optimizer(plain)
    trainers = [
        (create_supervised_trainer(ported if kind == "port" else ported.model, optimizer, LOSS), optimizer),
        (plain_trainer(plain, plain_optimizer, LOSS), plain_optimizer),
    ]
    for trainer, stepped in trainers:
        cycle = LinearCyclicalScheduler(stepped, "lr", start_value=0.3, end_value=0.01, cycle_size=8)
        trainer.add_event_handler(Events.ITERATION_STARTED, cycle)
        schedule = torch.optim.lr_scheduler.ExponentialLR(stepped, 0.5)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _engine, schedule=schedule: schedule.step())

    losses, expected = (run(trainer, batches) for trainer, _optimizer in trainers)

    assert losses == pytest.approx(expected, rel=1e-5)
    assert expected != train_plainly(batches)


def test_early_stopping_and_the_progress_bar_are_ignites(capsys):
    model, batches = make_model(), make_batches(*[6] * 5)
    trainer = create_supervised_trainer(model, make_optimizer(model), LOSS)
    evaluator = create_supervised_evaluator(model, {"loss": Loss(LOSS)})
    stopping = EarlyStopping(1, lambda engine: -engine.state.metrics["loss"], trainer, threshold=10.0)
    evaluator.add_event_handler(Events.COMPLETED, stopping)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _engine: evaluator.run(batches))
    ProgressBar(persist=True).attach(trainer, output_transform=lambda loss: {"loss": loss})

    trainer.run(batches, max_epochs=10)

    assert trainer.state.epoch == 2
    assert "loss=" in capsys.readouterr().err


def test_a_port_with_accumulation_takes_larger_batches():
    ported, optimizer = make_ported(options=PortOptions(micro_batch=3, accumulation=2))

    other, _optimizer = make_ported(options=PortOptions(micro_batch=3, accumulation=2))
    batches = make_batches(*[6] * 5)

    losses = run(create_supervised_trainer(ported, optimizer), batches)

    assert losses == [other(x, y)[1].item() for _epoch in range(4) for x, y in batches]


def test_output_transform_gets_what_ignites_gets():
    ported, _optimizer = make_ported()
    seen = []
    trainer = create_supervised_trainer(
        ported, output_transform=lambda x, y, y_pred, loss: seen.append((x, y, y_pred, loss))
    )

    trainer.run(make_batches(6))

    ((x, y, y_pred, loss),) = seen
    assert (x.shape, y.shape, y_pred.shape, loss.shape) == ((6, 4), (6,), (6, 3), ())


@pytest.mark.parametrize("kind", ["plain", "port"])
def test_an_interrupt_leaves_everything_usable(kind):
    ported, optimizer = make_ported()
    trainer = create_supervised_trainer(ported if kind == "port" else ported.model, optimizer, LOSS)
    batches = make_batches(*[6] * 5)

    def interrupt(_engine):
        raise KeyboardInterrupt

    handle = trainer.add_event_handler(Events.ITERATION_COMPLETED(once=7), interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(batches, max_epochs=4)

    handle.remove()
    losses = run(create_supervised_trainer(ported if kind == "port" else ported.model, optimizer, LOSS), batches)
    assert losses[-1] < losses[0]


def test_a_ragged_batch_for_a_port_that_makes_the_steps_is_named_with_the_remedy():
    ported, optimizer = make_ported()

    with pytest.raises(BatchError, match="drop_last=True") as caught:
        create_supervised_trainer(ported, optimizer, LOSS).run(make_batches(6, 2))

    assert caught.value.code == "B001"


REFUSED = {
    "amp_mode": {"amp_mode": "amp"},
    "scaler": {"scaler": True},
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 2},
    "model_fn": {"model_fn": lambda model, x: model(x)},
    "options": {"options": PortOptions()},
    "loss_fn": {"loss_fn": nn.CrossEntropyLoss()},
    "optimizer": {"optimizer": make_optimizer(make_model())},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_port_does_in_another_way_is_refused_by_name(name):
    ported, _optimizer = make_ported()

    with pytest.raises(OptionError, match=name) as caught:
        create_supervised_trainer(ported, **REFUSED[name])

    assert caught.value.code == "P002"


def test_another_device_is_refused():
    with pytest.raises(DeviceError, match="cuda") as caught:
        create_supervised_evaluator(make_model(), device="cuda")

    assert caught.value.code == "D003"


def test_without_ignite_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ignite", None)
    monkeypatch.delitem(sys.modules, on_device.__name__)

    with pytest.raises(PortingError, match=r"ipu-porting\[ignite\]") as caught:
        __import__(on_device.__name__)

    assert caught.value.code == "X001"
