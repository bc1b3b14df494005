"""Define the options that PopTorch lacks: how a compiled step runs, and who is notified of a compilation."""

from __future__ import annotations

import datetime
import os
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Optional, TypeVar

import torch
from tqdm import tqdm

from porting.diagnostics import Finding
from porting.engines import require_engine
from porting.options import ComputationOrder
from porting.simulator._logging import log_as_vendor
from porting.simulator._options_impl import OptionsDict, require, require_type

__all__ = ["CompilationProgressBar", "Extras", "SimulatorOptions", "read_extras"]

_Self = TypeVar("_Self", bound="SimulatorOptions")

_TITLE = "Graph compilation"
_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"


class CompilationProgressBar:
    """A callable ``(progress, total)`` that shows a bar and remembers the time from its first call to its last.

    A compilation that ends within ``delay_seconds`` is not shown.

    >>> CompilationProgressBar().compilation_time is None
    True
    """

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self._delay_seconds = delay_seconds
        self._bar: Optional[tqdm] = None
        self._start_seconds: Optional[float] = None
        self._duration_seconds: Optional[float] = None

    def __call__(self, progress: int, total: int) -> None:
        """Show that ``progress`` of ``total`` is done; the bar ends when they are equal."""
        now_seconds = time.perf_counter()
        if self._start_seconds is None:
            self._start_seconds, self._duration_seconds = now_seconds, None
        # only on a screen can a bar move; a file or a pipe gets one line at the end
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = tqdm(total=total, desc=_TITLE, bar_format=_FORMAT, delay=self._delay_seconds)
            self._bar.update(progress - self._bar.n)
        if progress >= total:
            self._duration_seconds = now_seconds - self._start_seconds
            if self._bar is None and self._duration_seconds >= self._delay_seconds:
                line = tqdm.format_meter(total, total, self._duration_seconds, prefix=_TITLE, bar_format=_FORMAT)
                # unlike `sys.stderr.write`, this leaves the bar of a program's own loop whole
                tqdm.write(line, file=sys.stderr)
            self.close()

    def close(self) -> None:
        """End an unfinished bar, for a compilation that failed."""
        self._start_seconds = None
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @property
    def compilation_time(self) -> Optional[datetime.timedelta]:
        """The seconds that the last finished compilation took; None before the first."""
        return None if self._duration_seconds is None else datetime.timedelta(seconds=self._duration_seconds)

    def __getstate__(self) -> Dict[str, Any]:
        # A bar on the screen belongs to the process and the object that started it.
        return {**self.__dict__, "_bar": None}


@dataclass(frozen=True)
class Extras:
    """The settings of `SimulatorOptions`, as the compiler reads them."""

    engine: str
    tuning_seconds: float = 180.0
    waits: bool = True
    shares_memory: bool = False
    autocast: Optional[torch.dtype] = None
    computation_order: str = "none"
    listener: Optional[Callable[[Finding], None]] = None
    progress_bar: CompilationProgressBar = field(default_factory=CompilationProgressBar)

    @property
    def report(self) -> Callable[[Finding], None]:
        """The function that gets the findings of a compilation: the listener, or PopTorch's log."""
        return self.listener or log_as_vendor


class SimulatorOptions(OptionsDict):
    """The base of `Options`, with settings that PopTorch does not have and that are no part of `toDict`."""

    def __init__(self, **default_values: Any) -> None:
        # one private attribute: programs look through the names of the vendor's class, and must find no further ones
        self._extras = Extras(engine=os.environ.get("PORTING_ENGINE") or "ready")
        super().__init__(**default_values)

    def useEngine(self: _Self, name: str, tuning_seconds: Optional[float] = None, waits: bool = True) -> _Self:
        """Choose how the simulator runs a compiled step: ``"ready"``, ``"auto"`` or the name of an engine.

        ``"ready"``, the default unless the environment variable PORTING_ENGINE says otherwise, takes a compiled
        executable that is on disk already, or else replays the step. ``"auto"`` measures at the first compilation which
        engine is the fastest, for at most ``tuning_seconds``; in a call, or unless it ``waits``, that is done beside
        the training. Raises OptionError P004 for a name that no engine has.
        """
        require_type(name, str, "a str for useEngine")
        require_engine(name)
        if tuning_seconds is not None:
            is_number = isinstance(tuning_seconds, (int, float)) and not isinstance(tuning_seconds, bool)
            require(is_number and tuning_seconds > 0, "tuning_seconds must be a number above 0")
            self._extras = replace(self._extras, tuning_seconds=float(tuning_seconds))
        self._extras = replace(self._extras, engine=name, waits=waits)
        return self

    def shareMemory(self: _Self) -> _Self:
        """Let the host's weights share the device's memory while nothing reads them.

        They have no values of their own then: `copyWeightsToDevice` discards no trained values unless the host's were
        read, as it would otherwise do.
        """
        self._extras = replace(self._extras, shares_memory=True)
        return self

    def useAutocast(self: _Self, dtype: Optional[torch.dtype] = torch.bfloat16) -> _Self:
        """Run `forward` as under ``torch.autocast`` with `dtype`, torch.bfloat16; None for no cast, as on an IPU."""
        require(dtype in (None, torch.bfloat16), f"Expected torch.bfloat16 or None for useAutocast but got {dtype}")
        self._extras = replace(self._extras, autocast=dtype)
        return self

    def useComputationOrder(self: _Self, order: str) -> _Self:
        """Compute part of the forward pass a second time for the backward pass, as `chen`, `gttime` or `gtmem` say.

        PopTorch's `recomputationCheckpoint` does it by hand. Raises ExecutableError E026 for an unknown order.
        """
        require_type(order, str, "a str for useComputationOrder")
        ComputationOrder.of(order)
        self._extras = replace(self._extras, computation_order=order)
        return self

    def reportTo(self: _Self, listener: Callable[[Finding], None]) -> _Self:
        """Pass findings of a compilation to `listener`, instead of logging PopTorch's lines about them.

        The progress bar then appears only for long compilations.
        """
        bar = CompilationProgressBar(delay_seconds=2.0)
        self._extras = replace(self._extras, listener=listener, progress_bar=bar)
        return self


def read_extras(options: SimulatorOptions) -> Extras:
    """Return the settings that PopTorch's options do not have."""
    return options._extras
