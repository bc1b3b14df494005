"""A table of comma-separated values that grows with the training, also with one that is resumed."""

from __future__ import annotations

import csv
import json

import pytest

from porting import fit
from porting.diagnostics import ExecutableError
from porting.training_loop import CsvLogger
from tests.training_loop.small_training import make_loader, make_port


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def train(folder, *, epochs=3, stop_behind=None):
    """Train with checkpoints and a log in one folder; Ctrl-C comes `stop_behind` a step."""

    def stop(_returned):
        if ported.port_optimizer.num_steps == stop_behind:
            raise KeyboardInterrupt

    ported, _optimizer = make_port()
    logger = CsvLogger(folder / "metrics.csv")
    settings = {"checkpoint": folder / "kept", "validation": make_loader(6), "after_call": stop, "log_every": 2}
    return fit(ported, make_loader(), epochs, progress=False, loggers=[logger], **settings)


def test_each_row_has_its_step_and_all_digits(tmp_path):
    history = train(tmp_path)

    rows = [row for row in read(tmp_path / "metrics.csv") if row["val_loss"]]
    assert [row["step"] for row in rows] == ["4", "8", "12"]
    assert [float(row["train_loss"]) for row in rows] == history
    assert [float(row["val_loss"]) for row in rows] == history.metrics["val_loss"]


def test_settings_stand_beside_it(tmp_path):
    train(tmp_path)

    assert json.loads((tmp_path / "metrics.json").read_text())["epochs"] == 3


def test_a_resumed_training_leaves_the_log_of_one_without_the_interruption(tmp_path):
    train(tmp_path / "whole")

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", stop_behind=11)
    train(tmp_path / "broken")

    assert read(tmp_path / "broken" / "metrics.csv") == read(tmp_path / "whole" / "metrics.csv")


def test_the_log_of_another_training_is_kept(tmp_path):
    for name in ("one", "two"):
        logger = CsvLogger(tmp_path / "metrics.csv")
        logger.log_metrics({name: 1.0}, step=1)

    assert list(read(tmp_path / "metrics-1.csv")[0]) == ["step", "one"]
    assert list(read(tmp_path / "metrics.csv")[0]) == ["step", "two"]


def test_a_file_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "logs").write_text("a file")

    with pytest.raises(ExecutableError, match="E029") as caught:
        CsvLogger(tmp_path / "logs" / "metrics.csv").log_metrics({"loss": 1.0}, step=1)

    assert caught.value.finding.place.file == __file__
