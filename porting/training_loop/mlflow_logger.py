"""Write a log of a training to MLflow, on a server or in a folder; it needs `mlflow`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ..diagnostics import require_extra
from .loggers import Value

__all__ = ["MlflowLogger"]


class MlflowLogger:
    """A logger of MLflow, as a run of an experiment.

    `tracking_uri` is a server or, without a network, a database such as `sqlite:///mlflow.db`; by default MLflow's
    own. A training that goes on from a checkpoint writes into the same run when it is given its `run_id`. Raises
    PortingError X001 where `mlflow` is not installed.
    """

    def __init__(
        self,
        experiment: str = "porting",
        *,
        name: Optional[str] = None,
        tracking_uri: Optional[str] = None,
        run_id: Optional[str] = None,
    ) -> None:
        tracking = require_extra("mlflow.tracking", extra="mlflow", message="`MlflowLogger` needs `mlflow`")
        self._client: Any = tracking.MlflowClient(tracking_uri)
        self._experiment = experiment
        self._name = name
        self.run_id = run_id

    def log_hyperparams(self, params: Dict[str, Value]) -> None:
        """Begin the run, with the settings as its parameters."""
        run_id = self._begin_run()
        # of a run that goes on: MLflow refuses another value of a parameter that it knows
        known = self._client.get_run(run_id).data.params
        for name in params.keys() - known.keys():
            self._client.log_param(run_id, name, params[name])

    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        """Add a point to the curve of each name."""
        run_id = self._begin_run()
        for name, value in metrics.items():
            self._client.log_metric(run_id, name, value, step=step)

    def finalize(self, status: str) -> None:
        """End the run; its number stays."""
        if self.run_id is not None:
            self._client.set_terminated(self.run_id, "FINISHED" if status == "success" else "FAILED")

    def _begin_run(self) -> str:
        if self.run_id is None:
            found = self._client.get_experiment_by_name(self._experiment)
            experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
            self.run_id = str(self._client.create_run(experiment, run_name=self._name).info.run_id)
        return self.run_id
