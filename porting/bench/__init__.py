"""Benchmarks compare the training of a port with plain eager PyTorch: `porting.bench(model, loss, batch)`.

The package can be called: `porting.bench(...)` is `porting.bench.bench(...)`. Names are loaded on first use (PEP 562),
so that processes whose start-up is measured load nothing that they do not need.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from porting.support.late_names import read_late_names

if TYPE_CHECKING:
    from porting.bench.choices import BenchSettings as BenchSettings
    from porting.bench.measure import bench as bench
    from porting.bench.report import BenchReport as BenchReport
    from porting.support.interleaved import Interval as Interval
    from porting.support.interleaved import Timing as Timing
    from porting.support.interleaved import ratio as ratio
    from porting.support.interleaved import time_interleaved as time_interleaved
    from porting.support.process import find_peak_bytes as find_peak_bytes

__all__, __getattr__, __dir__ = read_late_names(globals())


class _CallablePackage(ModuleType):
    """This package as a function."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Measure a model; see `porting.bench.bench`."""
        return self.bench(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
