"""Write what a training measures to loggers: the loss of calls, and the metrics of epochs.

Lightning's loggers have the same methods and can be handed over as well.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Dict, Optional, Protocol, Sequence

from ..diagnostics import OptionError
from ..structure import Structure
from ..support.process import this_instance
from .callbacks import FitState

__all__ = ["Logger", "LoggerFeed", "Value"]

Value = object
"""A setting: a number, a text, a truth value or None."""


class Logger(Protocol):
    """What `fit` writes to."""

    def log_hyperparams(self, params: Dict[str, Value]) -> None:
        """Write the settings of the training, once and first."""

    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        """Write numbers by name, as they are after `step` optimizer steps."""

    def finalize(self, status: str) -> None:
        """Write what is left: the training has ended, with "success" or "failed"."""


class LoggerFeed:
    """The callback that writes to loggers: `train_loss_step` every so many steps, and all metrics behind an epoch.

    Only instance 0 writes.
    """

    def __init__(self, loggers: Sequence[Logger], *, every: int) -> None:
        """Check the loggers; OptionError P002 for an object that is none."""
        for logger in loggers:
            _check_logger(logger)
        self._loggers = list(loggers) if this_instance().index == 0 else []
        self._every = every
        self._num_steps = 0

    def on_train_start(self, state: FitState) -> None:
        """Write the settings."""
        options = state.ported.port.options
        settings = {each.name: getattr(options, each.name) for each in fields(options)}
        plain = {name: value for name, value in settings.items() if isinstance(value, (str, int, float))}
        optimizer = state.ported.port_optimizer.given
        optimizer_name = "" if optimizer is None else type(optimizer).__name__
        self._num_steps = state.num_steps
        for logger in self._loggers:
            logger.log_hyperparams({"epochs": state.num_epochs, "optimizer": optimizer_name, **plain})

    def on_train_batch_end(self, state: FitState, _returned: Structure, _batch: Structure, _batch_index: int) -> None:
        """Write the loss of a call, if so many steps have gone by."""
        before, self._num_steps = self._num_steps, state.num_steps
        if self._num_steps // self._every > before // self._every:
            self._write_row(state, {"train_loss_step": state.loss})

    def on_train_epoch_end(self, state: FitState) -> None:
        """Write the metrics of an epoch."""
        self._write_row(state, state.metrics)

    def on_train_end(self, _state: FitState) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.finalize("success")

    def on_exception(self, _state: FitState, _exception: BaseException) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.finalize("failed")

    def _write_row(self, state: FitState, metrics: Dict[str, float]) -> None:
        for logger in self._loggers:
            logger.log_metrics({"epoch": state.epoch, **metrics}, step=state.num_steps)


def _check_logger(logger: object) -> None:
    missing = [name for name in ("log_hyperparams", "log_metrics", "finalize") if not hasattr(logger, name)]
    if missing or isinstance(logger, type):
        shown = logger.__name__ if isinstance(logger, type) else repr(logger)
        raise OptionError.at_caller(
            "P002",
            message=f"{shown} is no logger" + ("" if isinstance(logger, type) else f": it has no `{missing[0]}`"),
            help="pass objects with the methods of `porting.training_loop.Logger`, as in `loggers=[CsvLogger()]`",
        )
