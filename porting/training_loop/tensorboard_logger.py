"""Write a log of a training for TensorBoard, which shows curves in a browser; it needs `tensorboard`."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

from ..diagnostics import require_extra
from .loggers import Value

__all__ = ["TensorBoardLogger"]


class TensorBoardLogger:
    """A logger whose files `tensorboard --logdir FOLDER` shows.

    A training that goes on from a checkpoint hides the curves of steps that it makes again. Raises PortingError X001
    where `tensorboard` is not installed.
    """

    def __init__(self, folder: Union[str, os.PathLike[str]] = "logs") -> None:
        needs = {"extra": "tensorboard", "message": "`TensorBoardLogger` needs `tensorboard`"}
        require_extra("tensorboard", **needs)
        self._writers = require_extra("torch.utils.tensorboard", **needs)
        self.folder = os.fspath(folder)
        self._params: Dict[str, Value] = {}
        self._writer: Optional[Any] = None

    def log_hyperparams(self, params: Dict[str, Value]) -> None:
        """Keep the settings for the page of texts."""
        self._params = dict(params)

    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        """Add a point to the curve of each name."""
        if self._writer is None:
            self._writer = self._writers.SummaryWriter(self.folder, purge_step=step)
            rows = "\n".join(f"| {name} | {value} |" for name, value in self._params.items())
            self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def finalize(self, status: str) -> None:
        """Write what is left, and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
