"""Define `to_ipu(model, loss)` and the `PortedModel` that it returns.

Programs import these names from `porting`.
"""

from __future__ import annotations

from ..support.compiler_loading import optimizers_load_compiler_late
from .conversion import to_ipu
from .ported_model import PortedModel
from .run_report import ExecutorRecord, RunReport
from .runners import PortedInference

__all__ = ["ExecutorRecord", "PortedInference", "PortedModel", "RunReport", "to_ipu"]

optimizers_load_compiler_late()
