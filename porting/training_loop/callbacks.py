"""Call the hooks of callbacks, whose names are Lightning's, and tell them how far the training has come.

A hook gets a `FitState` where Lightning's get their trainer and module.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..api import PortedModel
from ..diagnostics import OptionError, join_names
from ..structure import Structure

__all__ = ["Callback", "CallbackList", "FitState", "FunctionCallback"]


@dataclass
class FitState:
    """How far a `fit` has come; setting `should_stop` ends it behind the epoch.

    `epoch` counts from 1. `loss` is that of the last call. `metrics` are those of the last epoch by their names, such
    as `train_loss` and `val_loss`.
    """

    ported: PortedModel
    num_epochs: int
    epoch: int = 0
    loss: float = float("nan")
    metrics: Dict[str, float] = field(default_factory=dict)
    should_stop: bool = False

    @property
    def num_steps(self) -> int:
        """The optimizer steps so far, those before a resumed checkpoint included."""
        return self.ported.port_optimizer.num_steps


class Callback:
    """Hooks that `fit` calls; a callback has those that it needs, and needs not inherit from this class.

    With `state_dict` and `load_state_dict` its state is a part of the checkpoints: plain values, or tensors.
    """

    def on_train_start(self, state: FitState) -> None:
        """Run before the first call, behind a resumed checkpoint."""

    def on_train_epoch_start(self, state: FitState) -> None:
        """Run before the first call of an epoch, and when the rest of one begins."""

    def on_train_batch_start(self, state: FitState, batch: Structure, batch_index: int) -> None:
        """Run before a call with a combined batch."""

    def on_train_batch_end(self, state: FitState, returned: Structure, batch: Structure, batch_index: int) -> None:
        """Run behind a call with what it has returned."""

    def on_validation_start(self, state: FitState) -> None:
        """Run before the validation of an epoch."""

    def on_validation_batch_end(self, state: FitState, returned: Structure, batch: Structure, batch_index: int) -> None:
        """Run behind a call of the validation."""

    def on_validation_end(self, state: FitState) -> None:
        """Run behind the validation, whose metrics are known then."""

    def on_train_epoch_end(self, state: FitState) -> None:
        """Run behind an epoch and its validation, before its checkpoint."""

    def on_train_end(self, state: FitState) -> None:
        """Run behind the last epoch."""

    def on_exception(self, state: FitState, exception: BaseException) -> None:
        """Run when an error, or Ctrl-C, ends the training."""


class FunctionCallback:
    """The functions `after_call` and `after_epoch` of `fit`, as a callback."""

    def __init__(
        self,
        after_call: Optional[Callable[[Any], object]],
        after_epoch: Optional[Callable[[int, float], object]],
    ) -> None:
        self._after_call = after_call
        self._after_epoch = after_epoch

    def on_train_batch_end(self, _state: FitState, returned: Structure, _batch: Structure, _batch_index: int) -> None:
        """Hand on what a call has returned."""
        if self._after_call is not None:
            self._after_call(returned)

    def on_train_epoch_end(self, state: FitState) -> None:
        """Hand on the number of the epoch and its mean loss."""
        if self._after_epoch is not None:
            self._after_epoch(state.epoch, state.metrics["train_loss"])


_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class CallbackList:
    """Callbacks in the order in which their hooks run, and their states by position and class."""

    def __init__(self, callbacks: Sequence[object]) -> None:
        """Check them; OptionError P002 for a class in the place of its instance, or for a hook that `fit` lacks."""
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            _check_callback(callback)

    def emit(self, hook: str, *args: object) -> None:
        """Run a hook of all callbacks that have it."""
        for callback in self._callbacks:
            function = getattr(callback, hook, None)
            if function is not None:
                function(*args)

    def read_states(self) -> Dict[str, object]:
        """Read the states of all callbacks that have one."""
        return {
            name: callback.state_dict()
            for name, callback in self._name_callbacks().items()
            if hasattr(callback, "state_dict")
        }

    def load_states(self, states: Mapping[str, object]) -> None:
        """Load the states of callbacks that are here and were there."""
        for name, callback in self._name_callbacks().items():
            if name in states:
                callback.load_state_dict(states[name])

    def _name_callbacks(self) -> Dict[str, Any]:
        """Name each callback by its class, and by its number among those of the class."""
        named: Dict[str, Any] = {}
        kinds: List[str] = []
        for callback in self._callbacks:
            kinds.append(type(callback).__name__)
            named[f"{kinds[-1]} {kinds.count(kinds[-1])}"] = callback
        return named


def _check_callback(callback: object) -> None:
    if isinstance(callback, type):
        raise OptionError.at_caller(
            "P002",
            message=f"a callback is the class {callback.__name__}",
            help=f"make an instance: `{callback.__name__}()`",
        )
    hooks = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
    unknown = [name for name in hooks if name not in _HOOKS]
    if unknown or not hooks:
        close = difflib.get_close_matches(unknown[0], _HOOKS, n=1) if unknown else []
        fault = f"has `{unknown[0]}`, which `fit` does not call" if unknown else "has no hook that `fit` calls"
        raise OptionError.at_caller(
            "P002",
            message=f"the callback `{type(callback).__name__}` {fault}",
            notes=f"hooks are {join_names(_HOOKS)}",
            help=f"call it `{close[0]}`" if close else "give it one of these hooks, or leave it out",
        )
