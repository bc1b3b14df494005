"""Compiled against eager: `porting.bench(model, loss, batch)`, and what its measurements are made of.

The package can be called: `porting.bench(...)` is `porting.bench.bench(...)`. Names are loaded on first use (PEP 562),
so that the processes whose start is measured load nothing that they do not need.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from porting.support.interleaved import Interval, Timing, ratio, time_interleaved

    from .choices import BenchSettings
    from .measure import bench
    from .report import BenchReport

__all__ = ["BenchReport", "BenchSettings", "Interval", "Timing", "bench", "ratio", "time_interleaved"]

_MODULES = {
    "BenchReport": "porting.bench.report",
    "BenchSettings": "porting.bench.choices",
    **dict.fromkeys(("Interval", "Timing", "ratio", "time_interleaved"), "porting.support.interleaved"),
    "bench": "porting.bench.measure",
}


class _CallablePackage(ModuleType):
    """This package as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Measure a model; see `porting.bench.bench`."""
        return self.bench(*args, **kwargs)


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _CallablePackage
