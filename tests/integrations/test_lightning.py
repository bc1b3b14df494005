"""Lightning's Trainer on a device: a LightningModule trains as on the CPU, and everything around it works."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import warnings

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.diagnostics import DeviceError, OptionError, PortingError
from porting.integrations.lightning import make_strategy
from tests.integrations.lightning_modules import make_loader, make_modules

PACKAGES = ["lightning.pytorch", "pytorch_lightning"]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*")


@pytest.fixture(autouse=True)
def _quiet():
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.ERROR)


@pytest.fixture(params=PACKAGES)
def package(request):
    return request.param


def fit(package, kind, strategy, *, seed=3, loader=None, validate=False, module=None, ckpt_path=None, **settings):
    """Train 20 steps on the CPU or the device."""
    library = importlib.import_module(package)
    library.seed_everything(seed, verbose=False)
    module = make_modules(package)[kind]() if module is None else module
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    quiet["enable_checkpointing"] = any(
        type(each).__name__ == "ModelCheckpoint" for each in settings.get("callbacks", ())
    )
    if strategy is not None:
        settings["strategy"] = strategy
    trainer = library.Trainer(**{"max_epochs": 5, "accelerator": "auto", **quiet, **settings})
    trainer.fit(module, loader or make_loader(), make_loader(20) if validate else None, ckpt_path=ckpt_path)
    return module, trainer


def on_device(package, **settings):
    return make_strategy(device="sim", package=package, **settings)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings(r"ignore:warning\[C021\]")
@pytest.mark.parametrize("kind", ["Classifier", "AutoEncoder", "Gan", "Tuned", "Noisy", "Wasserstein"])
def test_twenty_steps_of_a_public_module_are_those_on_the_cpu(kind, package):
    strategy = on_device(package)

    module, trainer = fit(package, kind, strategy, validate=kind == "Classifier")
    plain, plain_trainer = fit(package, kind, None, validate=kind == "Classifier")

    assert len(plain.losses) >= 20
    assert module.losses == plain.losses
    assert trainer.callback_metrics == plain_trainer.callback_metrics
    assert strategy.list_device_modules() != []


SETTINGS = {
    "clipped by norm": {"gradient_clip_val": 0.1},
    "clipped by value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    "accumulated": {"accumulate_grad_batches": 2},
    "on a CPU by name": {"accelerator": "cpu", "devices": 1},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_the_trainer_work_as_on_the_cpu(settings):
    package = PACKAGES[0]

    module, _trainer = fit(package, "Classifier", on_device(package), **settings)

    assert module.losses == fit(package, "Classifier", None, **settings)[0].losses


def test_ragged_and_shuffled_epochs_are_those_on_the_cpu():
    package = PACKAGES[0]

    module, _trainer = fit(package, "Classifier", on_device(package), loader=make_loader(50, shuffle=True))

    assert module.losses == fit(package, "Classifier", None, loader=make_loader(50, shuffle=True))[0].losses


def make_callbacks(package, folder):
    callbacks = importlib.import_module(f"{package}.callbacks")
    return [
        callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0),
        callbacks.ModelCheckpoint(folder, monitor="val_loss", save_last=True),
        callbacks.Timer(),
    ]


@pytest.mark.sampled(1)
def test_early_stopping_and_checkpoints_are_lightnings(package, tmp_path):
    module, trainer = fit(
        package, "Classifier", on_device(package), validate=True, callbacks=make_callbacks(package, tmp_path)
    )

    loaded = type(module).load_from_checkpoint(tmp_path / "last.ckpt", weights_only=False)

    assert trainer.current_epoch == 2  # nothing is better by 10
    assert torch.equal(loaded.out.weight, module.out.weight)
    assert type(loaded.out.weight) is nn.Parameter


@pytest.mark.slow
def test_a_training_that_is_resumed_goes_on_as_if_it_had_not_ended(tmp_path):
    package = PACKAGES[0]
    whole, _trainer = fit(package, "Classifier", on_device(package))
    first, _trainer = fit(
        package,
        "Classifier",
        on_device(package),
        max_epochs=2,
        callbacks=make_callbacks(package, tmp_path),
        validate=True,
    )

    second, _trainer = fit(package, "Classifier", on_device(package), ckpt_path=tmp_path / "last.ckpt")

    assert first.losses + second.losses == whole.losses


def test_averaged_weights_are_those_on_the_cpu():
    package = PACKAGES[0]
    averaging = importlib.import_module(f"{package}.callbacks").StochasticWeightAveraging

    module, _trainer = fit(package, "Tuned", on_device(package), callbacks=[averaging(1e-2, swa_epoch_start=0.6)])
    plain, _trainer = fit(package, "Tuned", None, callbacks=[averaging(1e-2, swa_epoch_start=0.6)])

    assert module.losses == plain.losses
    assert torch.equal(module.heads[0].weight, plain.heads[0].weight)


def test_averaged_weights_have_the_statistics_of_an_epoch_of_their_own():
    package = PACKAGES[0]
    averaging = importlib.import_module(f"{package}.callbacks").StochasticWeightAveraging

    states = []
    for strategy in (on_device(package), None):
        module, _trainer = fit(package, "Classifier", strategy, callbacks=[averaging(1e-2, swa_epoch_start=0.6)])
        states.append(module.state_dict())

    for name, expected in states[1].items():
        torch.testing.assert_close(states[0][name], expected, msg=name)


@pytest.mark.sampled(1)
def test_the_same_trainer_validates_tests_and_predicts(package):
    strategy = on_device(package)
    module, trainer = fit(package, "Classifier", strategy)
    plain, plain_trainer = fit(package, "Classifier", None)

    for call in ("validate", "test"):
        ((measured,), (expected,)) = (
            getattr(each, call)(own, make_loader(20), verbose=False)
            for each, own in ((trainer, module), (plain_trainer, plain))
        )
        assert measured == expected
    predicted = trainer.predict(module, make_loader(20))

    assert torch.equal(torch.cat(predicted), torch.cat(plain_trainer.predict(plain, make_loader(20))))


def test_after_the_training_the_module_is_plain():
    package = PACKAGES[0]
    strategy = on_device(package)

    module, _trainer = fit(package, "Classifier", strategy)

    assert not any("forward" in vars(part) for part in module.modules())
    assert {type(parameter) for parameter in module.parameters()} == {nn.Parameter}
    assert sum(record.num_calls for record in strategy.reports()[0].executors) == 40


@pytest.mark.sampled(1)
def test_an_interrupt_leaves_everything_usable(package):
    library = importlib.import_module(package)
    module = make_modules(package)["Classifier"]()

    class Interrupts(library.Callback):
        def on_before_backward(self, trainer, _module, _loss):
            if trainer.global_step == 7:
                raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            fit(package, "Classifier", on_device(package), module=module, callbacks=[Interrupts()])
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning has switched it off
    losses = list(module.losses)
    fit(package, "Classifier", on_device(package), module=module)

    assert len(losses) == 8
    assert module.losses[-1] < losses[0]
    assert not any("forward" in vars(part) for part in module.modules())


def test_an_error_in_a_step_names_the_line_and_leaves_the_module_plain():
    package = PACKAGES[0]
    classes = make_modules(package)

    class Reads(classes["Classifier"]):
        def forward(self, x):
            return super().forward(x) if x.mean() > 0 else x

    module = Reads()
    with pytest.raises(PortingError, match=r"if x.mean\(\) > 0") as caught:
        fit(package, "", on_device(package), module=module)

    assert caught.value.code == "C001"
    assert not any("forward" in vars(part) for part in module.modules())


def test_parts_may_be_chosen_where_forward_as_a_whole_is_for_the_host():
    package = PACKAGES[0]
    strategy = on_device(package, modules=["conv", "norm"])

    module, _trainer = fit(package, "Classifier", strategy)

    assert strategy.list_device_modules() == ["conv", "norm"]
    assert module.losses == fit(package, "Classifier", None)[0].losses


REFUSED = {
    "bf16-mixed": ({"precision": "bf16-mixed"}, "PortOptions"),
    "64-true": ({"precision": "64-true"}, "PortOptions"),
    "devices": ({"devices": 2}, "leave it out"),
    "num_nodes": ({"num_nodes": 2}, "leave it out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_belongs_to_other_devices_is_refused_by_name(name):
    settings, remedy = REFUSED[name]

    with pytest.raises(OptionError, match=name) as caught:
        fit(PACKAGES[0], "Classifier", on_device(PACKAGES[0]), **settings)

    assert caught.value.code == "P002"
    assert remedy in caught.value.finding.help[0]


@pytest.mark.parametrize("which", ["whole", "part"])
def test_torch_compile_is_refused_by_name(which):
    module = make_modules(PACKAGES[0])["Classifier"]()
    if which == "whole":
        module = torch.compile(module, backend="eager")
    else:
        module.hidden = torch.compile(module.hidden, backend="eager")

    with pytest.raises((DeviceError, OptionError), match=r"torch\.compile"):
        fit(PACKAGES[0], "", on_device(PACKAGES[0]), module=module)


def test_precision_is_an_option_of_the_port():
    package = PACKAGES[0]
    strategy = on_device(package, options=PortOptions(precision="bfloat16"))

    module, _trainer = fit(package, "Classifier", strategy)

    plain = fit(package, "Classifier", None)[0]
    assert module.losses != plain.losses
    assert module.losses == pytest.approx(plain.losses, abs=0.1)


def test_the_package_that_is_imported_is_the_one(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytorch_lightning"]:
        monkeypatch.delitem(sys.modules, name)
    library = importlib.import_module("lightning.pytorch")

    assert isinstance(make_strategy(), library.strategies.SingleDeviceStrategy)


def test_where_both_are_imported_one_must_be_said():
    for name in PACKAGES:
        importlib.import_module(name)

    with pytest.raises(OptionError, match="both imported"):
        make_strategy()


def test_without_lightning_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)

    with pytest.raises(PortingError, match=r"ipu-porting\[lightning\]") as caught:
        make_strategy(package="lightning.pytorch")

    assert caught.value.code == "X001"


def test_nothing_is_warned_of_by_the_port():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        fit(PACKAGES[0], "Classifier", on_device(PACKAGES[0]), validate=True)

    assert [each for each in shown if each.category.__module__.startswith("porting")] == []
