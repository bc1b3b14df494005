"""Train a ported model in a loop: `fit`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from types import GeneratorType
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from torch.utils.data import Dataset

from ..api import PortedModel
from ..api.fit_checkpoints import FitCheckpoints, FitProgress
from ..diagnostics import OptionError, join_names, say_kind
from ..options import is_count
from ..structure import Structure, make_call_arguments
from .callbacks import CallbackList, FitState, FunctionCallback
from .early_stopping import EarlyStopping, check_mode, is_better
from .loggers import Logger, LoggerFeed
from .progress import ProgressBar
from .schedules import Configuration, Schedules
from .validation import Metric, Validation, check_metrics

__all__ = ["History", "fit"]


class History(List[float]):
    """The mean losses of the epochs, as a list; `metrics` has the metrics of the validation by name."""

    def __init__(self, losses: Iterable[float], metrics: Mapping[str, Sequence[float]]) -> None:
        super().__init__(losses)
        self.metrics: Dict[str, List[float]] = {name: list(values) for name, values in metrics.items()}


def fit(
    ported: PortedModel,
    loader: Iterable[Structure],
    epochs: int,
    *,
    validation: Optional[Iterable[Structure]] = None,
    metrics: Optional[Mapping[str, Metric]] = None,
    early_stopping: Optional[EarlyStopping] = None,
    schedulers: Union[Configuration, Sequence[Configuration]] = (),
    callbacks: Union[object, Sequence[object]] = (),
    loggers: Union[Logger, Sequence[Logger]] = (),
    log_every: int = 50,
    checkpoint: Union[str, os.PathLike[str], None] = None,
    every: Optional[int] = None,
    keep: int = 5,
    resume: bool = True,
    monitor: Optional[str] = None,
    mode: str = "min",
    progress: bool = True,
    after_call: Optional[Callable[[Any], object]] = None,
    after_epoch: Optional[Callable[[int, float], object]] = None,
) -> History:
    """Train for `epochs` passes over `loader` and return the mean loss of each epoch.

    `loader` yields combined batches, as `ported.dataloader(...)` does: tuples or lists are positional arguments,
    dictionaries keywords. After `eval()` it switches to training again. The loss of a call is the mean of what the
    output mode returns; the bar says since which call it is NaN or infinite, as the warning L008 and
    the report do; `PortOptions(debug_nan=True)` ends the training there with the line (L009). Ctrl-C stops the
    loop and leaves the model with what it has learnt. No batch at all gives NaN.

    Behind each epoch the port is evaluated over the loader `validation`: `val_loss` and, for each of `metrics`,
    `val_NAME`. `early_stopping` ends a training that does not get better. `schedulers` are stepped by epoch, or as
    Lightning's dictionaries say. `callbacks` have hooks of Lightning's names, see `Callback`. `loggers` get the loss
    of a call every `log_every` optimizer steps, and the metrics of each epoch.

    `after_call` is called with the results of each call, losses and metrics included. `after_epoch` is called with the
    number of the epoch, counted from 1, and its mean loss; it may test the model and leave it in `eval()`.

    `checkpoint` is a folder that gets a checkpoint after each epoch and, with `every`, after each so many optimizer
    steps; the newest `keep` stay. `last.pt` there is the newest, `best.pt` that of the epoch with the best `monitor`:
    by default the smallest `val_loss`, or `train_loss` without a validation; `mode="max"` is for metrics that grow.
    With `resume` a training that has ended early, however it ended, continues from the newest, in the middle of an
    epoch too: the losses that follow are the same bit for bit. See docs/checkpoints.md for what belongs to that.

    >>> import torch
    >>> from porting import to_ipu
    >>> ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss())
    >>> batches = [(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64))]
    >>> first, second = fit(ported, batches, epochs=2, progress=False)
    >>> second < first
    True
    """
    _check_parts({"loader": loader, "validation": validation}, early_stopping)
    _check_epochs(epochs, {"loader": loader, "validation": validation})
    check_metrics(metrics or {}, has_validation=validation is not None)
    validated = None if validation is None else Validation(ported, validation, metrics or {})
    names = ("train_loss",) if validated is None else ("train_loss", *validated.names)
    best = _Best(monitor or names[:2][-1], mode)
    if early_stopping is not None:
        early_stopping.follow(monitor=best.monitor, mode=mode)
    _check_settings([best.monitor, getattr(early_stopping, "monitor", None) or best.monitor], names, log_every)
    schedules = Schedules(ported, _as_list(schedulers), monitor=best.monitor, names=names)
    bar = ProgressBar(loader, is_wanted=progress)
    stopping = [] if early_stopping is None else [early_stopping]
    functions = FunctionCallback(after_call, after_epoch)
    called = CallbackList(
        [functions, *_as_list(callbacks), *stopping, LoggerFeed(_as_list(loggers), every=log_every), bar]
    )
    kept = None
    with ExitStack() as held:
        if checkpoint is not None:
            kept = FitCheckpoints(ported, loader, checkpoint, called.read_states, every=every, keep=keep)
            held.enter_context(kept.hold_folder())
        made = FitProgress() if kept is None else kept.resume(epochs) if resume else kept.begin()
        loop = _Loop(FitState(ported, epochs), made, loader, validated, schedules, best, called, kept)
        held.enter_context(bar.showing())
        loop.run()
    return History(made.history, made.metrics)


# others that return themselves from `iter` may begin anew there
_READ_ONCE = (GeneratorType, enumerate, filter, map, zip)


@dataclass(frozen=True)
class _Best:
    """The metric by which the best epoch is chosen."""

    monitor: str
    mode: str

    def __post_init__(self) -> None:
        """Refuse another mode than the two."""
        check_mode(self.mode)


@dataclass
class _Loop:
    """The parts of a `fit` that act in each epoch."""

    state: FitState
    made: FitProgress
    loader: Iterable[Structure]
    validation: Optional[Validation]
    schedules: Schedules
    best: _Best
    callbacks: CallbackList
    kept: Optional[FitCheckpoints]

    def run(self) -> None:
        """Go on from what is made to the last epoch."""
        state, made = self.state, self.made
        self.callbacks.load_states(made.states)
        self.schedules.begin()
        state.metrics = {name: values[-1] for name, values in made.metrics.items()}
        try:
            self.callbacks.emit("on_train_start", state)
            while len(made.history) < state.num_epochs and not state.should_stop:
                state.epoch = len(made.history) + 1
                self._train_epoch()
                self._end_epoch()
            self.callbacks.emit("on_train_end", state)
        except BaseException as error:
            self.callbacks.emit("on_exception", state, error)
            raise

    def _train_epoch(self) -> None:
        state, ported = self.state, self.state.ported
        ported.train()
        self.callbacks.emit("on_train_epoch_start", state)
        batches = iter(self.loader) if self.kept is None else self.kept.begin_epoch()
        for index, batch in enumerate(batches, self.made.num_calls):
            self.callbacks.emit("on_train_batch_start", state, batch, index)
            args, kwargs = make_call_arguments(batch)
            returned = ported(*args, **kwargs)
            state.loss = float(ported.loss_of(returned).float().mean())
            self.made.note_call(state.loss)
            self.schedules.step_after_call()
            self.callbacks.emit("on_train_batch_end", state, returned, batch, index)
            if self.kept is not None:
                self.kept.note_call()

    def _end_epoch(self) -> None:
        state, made = self.state, self.made
        made.end_epoch()
        measured = {} if self.validation is None else self._validate_epoch(self.validation)
        for name, value in measured.items():
            made.metrics.setdefault(name, []).append(value)
        state.metrics = {"train_loss": made.history[-1], **measured}
        self.callbacks.emit("on_train_epoch_end", state)
        # behind the hooks, as Lightning does it
        self.schedules.step_after_epoch(state.epoch, state.metrics)
        score = state.metrics[self.best.monitor]
        has_improved = is_better(score, made.best_score, mode=self.best.mode)
        if has_improved:
            made.best_score, made.best_step = score, state.num_steps
        if self.kept is not None:
            self.kept.note_epoch()

    def _validate_epoch(self, validation: Validation) -> Dict[str, float]:
        self.callbacks.emit("on_validation_start", self.state)
        measured = validation.measure(partial(self.callbacks.emit, "on_validation_batch_end", self.state))
        self.state.metrics = {"train_loss": self.made.history[-1], **measured}
        self.callbacks.emit("on_validation_end", self.state)
        return measured


def _as_list(given: object) -> List[Any]:
    """List what may be given alone, as to Lightning's Trainer."""
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _check_parts(loaders: Mapping[str, object], early_stopping: Optional[EarlyStopping]) -> None:
    """Raise OptionError P002 for a dataset in the place of a loader, or for a foreign early stopping."""
    for name, loader in loaders.items():
        if isinstance(loader, Dataset) and not hasattr(loader, "__iter__"):
            given = "dataset, training=False" if name == "validation" else "dataset, shuffle=True"
            raise OptionError.at_caller(
                "P002",
                message=f"`{name}` is the dataset `{type(loader).__name__}`, which yields samples and no batches",
                help=f"pass a loader: `ported.dataloader({given})`",
            )
    if early_stopping is not None and not isinstance(early_stopping, EarlyStopping):
        raise OptionError.at_caller(
            "P002",
            message=f"`early_stopping` is {early_stopping!r}",
            help="pass `porting.training_loop.EarlyStopping(patience=3)`",
        )


def _check_epochs(epochs: object, loaders: Mapping[str, object]) -> None:
    """Raise OptionError P002 for what is no number of epochs, and for batches that only the first epoch would get."""
    if not isinstance(epochs, Integral) or isinstance(epochs, bool) or int(epochs) < 0:
        raise OptionError.at_caller(
            "P002",
            message=f"`epochs` is {epochs!r}, not a number of passes over the loader",
            help="pass a whole number, of a command line with `type=int`: `fit(ported, loader, 10)`",
        )
    for name, loader in loaders.items():
        if int(epochs) > 1 and isinstance(loader, _READ_ONCE):
            raise OptionError.at_caller(
                "P002",
                message=f"`{name}` is {say_kind(loader)}, which has no batches for a second epoch",
                help="pass what can be read again: a loader, or a list of batches",
            )


def _check_settings(monitors: Sequence[str], names: Sequence[str], log_every: int) -> None:
    for monitor in monitors:
        if monitor not in names:
            raise OptionError.at_caller(
                "P002",
                message=f"`monitor` is {monitor!r}, which is not measured",
                notes=f"measured are {join_names(names)}",
                help="name one of these, or measure it: `fit(..., validation=loader, metrics={name: function})`",
            )
    if not is_count(log_every):
        raise OptionError.at_caller(
            "P002",
            message=f"`log_every` is {log_every!r}, not a positive number",
            help="pass a number of optimizer steps: `fit(..., log_every=50)`",
        )
