"""The options that PopTorch does not have: how the simulator runs a compiled step, and who hears of its findings."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, TypeVar

import torch

from porting.diagnostics import Finding
from porting.engines import require_engine
from porting.engines.recompute.recomputation import ComputationOrder
from porting.simulator._compile.progress_bar import CompilationProgressBar
from porting.simulator._options_impl import OptionsDict, require

__all__ = ["SimulatorOptions"]

_Self = TypeVar("_Self", bound="SimulatorOptions")


class SimulatorOptions(OptionsDict):
    """The base of `Options`. None of its settings is part of `toDict`, so a vendor's compiler never sees them."""

    def __init__(self, **default_values: Any) -> None:
        self._engine = os.environ.get("PORTING_ENGINE") or "ready"
        self._tuning_seconds = 180.0
        self._autocast: Optional[torch.dtype] = None
        self._computation_order = "none"
        self._listener: Optional[Callable[[Finding], None]] = None
        self._progress_bar = CompilationProgressBar()
        super().__init__(**default_values)

    def useEngine(self: _Self, name: str, tuning_seconds: Optional[float] = None) -> _Self:
        """Choose how the simulator runs a compiled step: ``"ready"``, ``"auto"`` or the name of an engine.

        ``"ready"``, the default unless the environment variable PORTING_ENGINE says otherwise, takes a compiled
        executable that is on disk already, or else replays the step. ``"auto"`` measures at the first compilation which
        engine is the fastest, for at most ``tuning_seconds``. PopTorch has no such option; it is not part of `toDict`.
        Raises OptionError P004 for a name that no engine has.
        """
        require(isinstance(name, str), f"Expected a str for useEngine but got {type(name)}")
        require_engine(name)
        if tuning_seconds is not None:
            is_number = isinstance(tuning_seconds, (int, float)) and not isinstance(tuning_seconds, bool)
            require(is_number and tuning_seconds > 0, "tuning_seconds must be a number above 0")
            self._tuning_seconds = float(tuning_seconds)
        self._engine = name
        return self

    def useAutocast(self: _Self, dtype: Optional[torch.dtype] = torch.bfloat16) -> _Self:
        """Run `forward` as under ``torch.autocast`` with `dtype`, torch.bfloat16; None for as an IPU would.

        PopTorch has no such option, and no IPU has bfloat16; it is not part of `toDict`.
        """
        require(dtype in (None, torch.bfloat16), f"Expected torch.bfloat16 or None for useAutocast but got {dtype}")
        self._autocast = dtype
        return self

    def useComputationOrder(self: _Self, order: str) -> _Self:
        """Compute part of the forward pass a second time for the backward pass, as `chen`, `gttime` or `gtmem` say.

        PopTorch has no such option; its `recomputationCheckpoint` does the same by hand. Not part of `toDict`. Raises
        ExecutableError E026 for an order that there is not.
        """
        require(isinstance(order, str), f"Expected a str for useComputationOrder but got {type(order)}")
        ComputationOrder.of(order)
        self._computation_order = order
        return self

    def reportTo(self: _Self, listener: Callable[[Finding], None]) -> _Self:
        """Hand findings of a compilation to `listener`, in the place of the lines that PopTorch logs about them.

        The progress bar then appears for what takes long only. PopTorch has no such option; not part of `toDict`.
        """
        self._listener = listener
        self._progress_bar = CompilationProgressBar(delay_seconds=2.0)
        return self
