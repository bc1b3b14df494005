"""Stop a training whose metric does not improve any more, by the rules of Lightning's class of this name."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional

from ..adapters.instances import average_over_instances
from ..diagnostics import OptionError
from .callbacks import FitState

__all__ = ["EarlyStopping", "check_mode", "is_better"]

_WORST = {"min": math.inf, "max": -math.inf}


def check_mode(mode: str) -> None:
    """Raise OptionError P002 unless `mode` is "min" or "max"."""
    if mode not in _WORST:
        raise OptionError.at_caller(
            "P002",
            message=f"`mode` is {mode!r}",
            help='say `mode="min"` for a metric that should be small, such as a loss, and `mode="max"` otherwise',
        )


def is_better(value: float, best: Optional[float], *, mode: str, min_delta: float = 0.0) -> bool:
    """Tell whether a value is better than the best one by more than `min_delta`; everything is better than None.

    >>> is_better(0.9, 1.0, mode="min"), is_better(0.9, 1.0, mode="min", min_delta=0.2)
    (True, False)
    """
    best = _WORST[mode] if best is None else best
    return value + min_delta < best if mode == "min" else value - min_delta > best


class EarlyStopping:
    """Ends a `fit` when its metric has not improved for `patience` epochs, or is not finite.

    `monitor` and `mode` are those of `fit` unless they are given. `stopped_epoch` is the epoch that was the last, 0
    while none was.

    >>> EarlyStopping(patience=2).stopped_epoch
    0
    """

    def __init__(
        self,
        monitor: Optional[str] = None,
        *,
        min_delta: float = 0.0,
        patience: int = 3,
        mode: Optional[str] = None,
        check_finite: bool = True,
    ) -> None:
        check_mode(mode or "min")
        self.monitor = monitor
        self.mode = mode
        self.min_delta = min_delta
        self.patience = patience
        self.check_finite = check_finite
        self.best_score: Optional[float] = None
        self.wait_count = 0
        self.stopped_epoch = 0
        self._is_finite = True

    def follow(self, *, monitor: str, mode: str) -> None:
        """Take what was not given from `fit`."""
        self.monitor = self.monitor or monitor
        self.mode = self.mode or mode

    def on_train_start(self, state: FitState) -> None:
        """Stop at once where the checkpoint is of a training that was stopped, and more patience is not given."""
        if self.stopped_epoch and (self.wait_count >= self.patience or not self._is_finite):
            state.should_stop = True

    def on_train_epoch_end(self, state: FitState) -> None:
        """Compare the metric of the epoch with the best one."""
        value = average_over_instances(state.metrics[str(self.monitor)])
        self._is_finite = math.isfinite(value) or not self.check_finite
        if not self._is_finite:
            state.should_stop = True
        elif is_better(value, self.best_score, mode=str(self.mode), min_delta=self.min_delta):
            self.best_score, self.wait_count = value, 0
        else:
            self.wait_count += 1
            state.should_stop = state.should_stop or self.wait_count >= self.patience
        if state.should_stop:
            self.stopped_epoch = state.epoch

    def state_dict(self) -> Dict[str, Any]:
        """Return what a resumed training needs."""
        names = ("best_score", "wait_count", "stopped_epoch", "_is_finite")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.__dict__.update(state)
