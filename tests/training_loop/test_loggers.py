"""What loggers are given, and when; Lightning's loggers are such, too."""

from __future__ import annotations

import pytest

from porting import fit
from porting.diagnostics import OptionError
from tests.training_loop.small_training import make_loader, make_port


class Recorded:
    """A logger that keeps what it is given."""

    def __init__(self):
        self.params, self.rows, self.status = {}, [], ""

    def log_hyperparams(self, params):
        self.params = params

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))

    def finalize(self, status):
        self.status = status


def test_metrics_are_logged_behind_each_epoch_with_the_step():
    logger = Recorded()

    history = fit(make_port()[0], make_loader(), 2, progress=False, validation=make_loader(6), loggers=[logger])

    losses = history.metrics["val_loss"]
    assert logger.rows == [
        (4, {"epoch": 1, "train_loss": history[0], "val_loss": losses[0]}),
        (8, {"epoch": 2, "train_loss": history[1], "val_loss": losses[1]}),
    ]
    assert logger.status == "success"


def test_the_loss_of_a_call_is_logged_every_so_many_steps():
    logger = Recorded()

    fit(make_port()[0], make_loader(), 1, progress=False, loggers=[logger], log_every=2)

    assert [step for step, metrics in logger.rows if "train_loss_step" in metrics] == [2, 4]


def test_settings_are_logged_once():
    logger = Recorded()

    fit(make_port(micro_batch=6)[0], make_loader(), 1, progress=False, loggers=[logger])

    assert logger.params["epochs"] == 1
    assert logger.params["optimizer"] == "SGD"
    assert logger.params["micro_batch"] == 6


def test_a_training_that_fails_is_logged_as_failed():
    def fail(_returned):
        raise KeyboardInterrupt

    logger = Recorded()

    with pytest.raises(KeyboardInterrupt):
        fit(make_port()[0], make_loader(), 1, progress=False, loggers=[logger], after_call=fail)

    assert logger.status == "failed"


def test_only_the_first_instance_writes(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    logger = Recorded()

    fit(make_port()[0], [], 1, progress=False, loggers=[logger])

    assert (logger.rows, logger.status) == ([], "")


def test_a_logger_of_lightning_writes_what_it_is_given(tmp_path):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    logger = loggers.CSVLogger(tmp_path, name="", version="")

    fit(make_port()[0], make_loader(), 2, progress=False, loggers=[logger])

    header, *rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert "train_loss" in header
    assert len(rows) == 2


@pytest.mark.parametrize("logger", ["logs", Recorded], ids=str)
def test_what_is_no_logger_is_refused(logger):
    with pytest.raises(OptionError, match="is no logger"):
        fit(make_port()[0], make_loader(), 1, progress=False, loggers=[logger])
