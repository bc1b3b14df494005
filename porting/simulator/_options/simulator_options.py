"""The options that PopTorch does not have: how the simulator runs a compiled step, and who hears of its findings."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, TypeVar

import torch

from porting.diagnostics import Finding
from porting.engines import require_engine
from porting.engines.recompute.recomputation import ComputationOrder
from porting.simulator._compile.progress_bar import CompilationProgressBar
from porting.simulator._logging import log_as_vendor
from porting.simulator._options_impl import OptionsDict, require, require_type

__all__ = ["Extras", "SimulatorOptions", "read_extras"]

_Self = TypeVar("_Self", bound="SimulatorOptions")


@dataclass(frozen=True)
class Extras:
    """What the setters of `SimulatorOptions` were told, for the compiler."""

    engine: str
    tuning_seconds: float = 180.0
    autocast: Optional[torch.dtype] = None
    computation_order: str = "none"
    listener: Optional[Callable[[Finding], None]] = None
    progress_bar: CompilationProgressBar = field(default_factory=CompilationProgressBar)

    @property
    def report(self) -> Callable[[Finding], None]:
        """What gets the findings of a compilation: the listener, or PopTorch's log."""
        return self.listener or log_as_vendor


class SimulatorOptions(OptionsDict):
    """The base of `Options`. None of its settings is part of `toDict`, so a vendor's compiler never sees them."""

    def __init__(self, **default_values: Any) -> None:
        # one private attribute: programs look through the names of the vendor's class, and must find no further ones
        self._extras = Extras(engine=os.environ.get("PORTING_ENGINE") or "ready")
        super().__init__(**default_values)

    def useEngine(self: _Self, name: str, tuning_seconds: Optional[float] = None) -> _Self:
        """Choose how the simulator runs a compiled step: ``"ready"``, ``"auto"`` or the name of an engine.

        ``"ready"``, the default unless the environment variable PORTING_ENGINE says otherwise, takes a compiled
        executable that is on disk already, or else replays the step. ``"auto"`` measures at the first compilation which
        engine is the fastest, for at most ``tuning_seconds``. PopTorch has no such option; it is not part of `toDict`.
        Raises OptionError P004 for a name that no engine has.
        """
        require_type(name, str, "a str for useEngine")
        require_engine(name)
        if tuning_seconds is not None:
            is_number = isinstance(tuning_seconds, (int, float)) and not isinstance(tuning_seconds, bool)
            require(is_number and tuning_seconds > 0, "tuning_seconds must be a number above 0")
            self._extras = replace(self._extras, tuning_seconds=float(tuning_seconds))
        self._extras = replace(self._extras, engine=name)
        return self

    def useAutocast(self: _Self, dtype: Optional[torch.dtype] = torch.bfloat16) -> _Self:
        """Run `forward` as under ``torch.autocast`` with `dtype`, torch.bfloat16; None for as an IPU would.

        PopTorch has no such option, and no IPU has bfloat16; it is not part of `toDict`.
        """
        require(dtype in (None, torch.bfloat16), f"Expected torch.bfloat16 or None for useAutocast but got {dtype}")
        self._extras = replace(self._extras, autocast=dtype)
        return self

    def useComputationOrder(self: _Self, order: str) -> _Self:
        """Compute part of the forward pass a second time for the backward pass, as `chen`, `gttime` or `gtmem` say.

        PopTorch has no such option; its `recomputationCheckpoint` does the same by hand. Not part of `toDict`. Raises
        ExecutableError E026 for an order that there is not.
        """
        require_type(order, str, "a str for useComputationOrder")
        ComputationOrder.of(order)
        self._extras = replace(self._extras, computation_order=order)
        return self

    def reportTo(self: _Self, listener: Callable[[Finding], None]) -> _Self:
        """Hand findings of a compilation to `listener`, in the place of the lines that PopTorch logs about them.

        The progress bar then appears for what takes long only. PopTorch has no such option; not part of `toDict`.
        """
        bar = CompilationProgressBar(delay_seconds=2.0)
        self._extras = replace(self._extras, listener=listener, progress_bar=bar)
        return self


def read_extras(options: SimulatorOptions) -> Extras:
    """Return the settings that PopTorch's options do not have."""
    return options._extras
