"""Write a log of a training to Weights & Biases, or to a folder that is sent there later; it needs `wandb`."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

from ..diagnostics import require_extra
from .loggers import Value

__all__ = ["WandbLogger"]


class WandbLogger:
    """A logger of `wandb`; with `offline` nothing leaves the machine, and `wandb sync FOLDER` sends it later.

    A training that goes on from a checkpoint writes into the same run when it is given its `run_id`. `settings` are
    further ones of `wandb.init`. Raises PortingError X001 where `wandb` is not installed.
    """

    def __init__(
        self,
        project: str,
        *,
        name: Optional[str] = None,
        folder: Union[str, os.PathLike[str]] = ".",
        run_id: Optional[str] = None,
        offline: bool = False,
        **settings: object,
    ) -> None:
        self._wandb = require_extra("wandb", extra="wandb", message="`WandbLogger` needs `wandb`")
        known = {"project": project, "name": name, "dir": os.fspath(folder), "id": run_id}
        modes = {"mode": "offline" if offline else None, "resume": None if run_id is None else "allow"}
        self._settings = {**known, **modes, **settings}
        self._run: Optional[Any] = None

    def log_hyperparams(self, params: Dict[str, Value]) -> None:
        """Begin the run, with the settings as its configuration."""
        self._begin_run().config.update(params, allow_val_change=True)

    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        """Add a point to the curve of each name."""
        self._begin_run().log(metrics, step=step)

    def finalize(self, status: str) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "success" else 1)
            self._run = None

    def _begin_run(self) -> Any:
        if self._run is None:
            self._run = self._wandb.init(**self._settings)
        return self._run
