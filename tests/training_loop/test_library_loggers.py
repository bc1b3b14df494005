"""TensorBoard, W&B and MLflow get what `fit` measures, each through its own library and without a network."""

from __future__ import annotations

import sys

import pytest

from porting import fit
from porting.diagnostics import PortingError
from porting.training_loop import MlflowLogger, TensorBoardLogger, WandbLogger
from tests.training_loop.small_training import make_loader, make_port

# of the libraries and what they import
pytestmark = pytest.mark.filterwarnings("ignore")


def train(logger, *, epochs=2, folder=None):
    ported, _optimizer = make_port()
    return fit(ported, make_loader(), epochs, progress=False, loggers=[logger], checkpoint=folder, log_every=4)


def read_curve(folder, name):
    """Return the points of a curve that TensorBoard shows."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_shows_the_curves(tmp_path):
    pytest.importorskip("tensorboard")

    history = train(TensorBoardLogger(tmp_path))

    assert read_curve(tmp_path, "train_loss") == [(4, pytest.approx(history[0])), (8, pytest.approx(history[1]))]
    assert [step for step, _loss in read_curve(tmp_path, "train_loss_step")] == [4, 8]


def test_tensorboard_shows_a_resumed_training_as_one_curve(tmp_path):
    pytest.importorskip("tensorboard")

    for epochs in (1, 3):
        history = train(TensorBoardLogger(tmp_path / "logs"), epochs=epochs, folder=tmp_path / "kept")

    steps, values = zip(*read_curve(tmp_path / "logs", "train_loss"))
    assert steps == (4, 8, 12)
    assert values == pytest.approx(tuple(history))


@pytest.mark.slow
def test_wandb_keeps_a_run_in_a_folder_without_a_network(tmp_path):
    pytest.importorskip("wandb")
    logger = WandbLogger("trial", folder=tmp_path, offline=True)

    train(logger)

    assert [path.suffix for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")] == [".wandb"]


@pytest.mark.slow
def test_mlflow_keeps_settings_and_metrics_of_a_run(tmp_path):
    tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MlflowLogger("trial", tracking_uri=uri)

    history = train(logger)

    client = tracking.MlflowClient(uri)
    run = client.get_run(logger.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizer"] == "SGD"
    assert [point.value for point in client.get_metric_history(logger.run_id, "train_loss")] == history


@pytest.mark.slow
def test_mlflow_goes_on_with_a_run(tmp_path):
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    first = MlflowLogger("trial", tracking_uri=uri)
    train(first, epochs=1, folder=tmp_path / "kept")
    second = MlflowLogger("trial", tracking_uri=uri, run_id=first.run_id)

    train(second, epochs=3, folder=tmp_path / "kept")

    history = second._client.get_metric_history(first.run_id, "train_loss")
    assert [point.step for point in history] == [4, 8, 12]


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("tensorboard", TensorBoardLogger),
        ("wandb", lambda: WandbLogger("trial")),
        ("mlflow", MlflowLogger),
    ],
)
def test_a_library_that_is_missing_is_an_error_with_its_install_line(library, make, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(PortingError, match="X001") as caught:
        make()

    assert f'pip install "ipu-porting[{library}]"' in caught.value.finding.help
    assert caught.value.finding.place.file == __file__
