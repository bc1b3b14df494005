"""What `fit` measures, stops, keeps and schedules is what Lightning does with the same model."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.optim.lr_scheduler as schedulers

from porting import fit
from porting.training_loop import EarlyStopping
from tests.training_loop.small_training import accuracy, make_loader, make_port

pl = pytest.importorskip("lightning.pytorch")
torchmetrics = pytest.importorskip("torchmetrics")
from tests.training_loop.lightning_training import train_by_lightning  # noqa: E402 - it needs Lightning

EPOCHS = 4
# a learning rate by which the validation gets worse from some epoch on
HIGH = 0.5


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.mark.parametrize("rows", [12, 14], ids=["full batches", "a smaller last batch"])
def test_losses_and_metrics_of_each_epoch_are_the_same(rows):
    ported, _optimizer = make_port()
    metrics = {"accuracy": accuracy, "recall": torchmetrics.Recall(task="multiclass", num_classes=3, average="macro")}

    history = fit(ported, make_loader(), EPOCHS, progress=False, validation=make_loader(rows, seed=5), metrics=metrics)
    module = train_by_lightning(make_loader(), EPOCHS, validation=make_loader(rows, seed=5))

    assert history == pytest.approx([epoch["train_loss"] for epoch in module.epochs], rel=1e-5)
    assert set(history.metrics) == {"val_loss", "val_accuracy", "val_recall"}
    for name, values in history.metrics.items():
        assert values == pytest.approx([epoch[name] for epoch in module.epochs], rel=1e-5), name


@pytest.mark.parametrize(
    "settings",
    [
        {"monitor": "val_loss", "patience": 1},
        {"monitor": "val_loss", "patience": 2, "min_delta": 0.05},
        {"monitor": "train_loss", "patience": 2, "min_delta": 0.3},
        {"monitor": "val_accuracy", "patience": 3, "mode": "max"},
    ],
    ids=str,
)
def test_a_training_stops_behind_the_same_epoch(settings):
    ported, _optimizer = make_port(HIGH)
    ours, theirs = EarlyStopping(**settings), pl.callbacks.EarlyStopping(**settings)
    validation = make_loader(12, seed=5)

    history = fit(
        ported,
        make_loader(),
        20,
        progress=False,
        validation=validation,
        metrics={"accuracy": accuracy},
        early_stopping=ours,
    )
    module = train_by_lightning(make_loader(), 20, validation=validation, callbacks=[theirs], lr=HIGH)

    assert len(history) == len(module.epochs) < 20
    assert ours.stopped_epoch == theirs.stopped_epoch + 1
    assert ours.wait_count == theirs.wait_count
    assert ours.best_score == pytest.approx(float(theirs.best_score), rel=1e-5)


def test_the_best_and_the_last_checkpoint_are_of_the_same_steps(tmp_path):
    ported, _optimizer = make_port(HIGH)
    best = pl.callbacks.ModelCheckpoint(tmp_path / "best", monitor="val_loss")
    each = pl.callbacks.ModelCheckpoint(tmp_path / "each", save_top_k=-1, save_last=True)
    validation = make_loader(12, seed=5)

    fit(ported, make_loader(), 10, progress=False, validation=validation, checkpoint=tmp_path / "ours")
    train_by_lightning(make_loader(), 10, validation=validation, callbacks=[best, each], lr=HIGH)

    for ours, theirs in (("best.pt", best.best_model_path), ("last.pt", each.last_model_path)):
        mine = torch.load(tmp_path / "ours" / ours, weights_only=True)
        other = torch.load(theirs, weights_only=False)
        assert mine["step"] == other["global_step"]
        weights = {name.replace("layers.", ""): value for name, value in other["state_dict"].items()}
        torch.testing.assert_close(mine["model"], {n: weights[n] for n in mine["model"]}, rtol=1e-4, atol=1e-6)
    assert 4 <= torch.load(tmp_path / "ours" / "best.pt", weights_only=True)["step"] < 40


SCHEDULES = {
    "by epoch": lambda optimizer: schedulers.StepLR(optimizer, 1, 0.5),
    "by step": lambda optimizer: {"scheduler": schedulers.ExponentialLR(optimizer, 0.9), "interval": "step"},
    "every second step": lambda optimizer: {
        "scheduler": schedulers.ExponentialLR(optimizer, 0.9),
        "interval": "step",
        "frequency": 2,
    },
    "every second epoch": lambda optimizer: {"scheduler": schedulers.ExponentialLR(optimizer, 0.5), "frequency": 2},
    "on a plateau": lambda optimizer: {
        "scheduler": schedulers.ReduceLROnPlateau(optimizer, patience=0),
        "monitor": "val_loss",
    },
}


@pytest.mark.parametrize("make_scheduler", SCHEDULES.values(), ids=SCHEDULES)
def test_the_learning_rate_of_each_step_is_the_same(make_scheduler):
    ported, optimizer = make_port(HIGH)
    rates = []

    class Rates:
        def on_train_batch_start(self, _state, _batch, _batch_index):
            rates.append(optimizer.param_groups[0]["lr"])

    validation = make_loader(12, seed=5)
    history = fit(
        ported,
        make_loader(),
        6,
        progress=False,
        validation=validation,
        schedulers=[make_scheduler(optimizer)],
        callbacks=[Rates()],
    )
    module = train_by_lightning(make_loader(), 6, validation=validation, lr=HIGH, make_scheduler=make_scheduler)

    assert rates == module.rates
    assert len(set(rates)) > 1
    assert history == pytest.approx([epoch["train_loss"] for epoch in module.epochs], rel=1e-4)
