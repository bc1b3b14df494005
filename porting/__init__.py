"""Port a PyTorch model to an IPU, real or simulated, in one call: `to_ipu(model, loss)`.

The public names are loaded on first use (PEP 562): `import porting` and the command line stay fast and need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from porting.adapters import (
        FixedBatchDataset,
        LossInForward,
        SchedulerBridge,
        load_chainer_npz,
        masked_accuracy,
        partition,
        sum_over_instances,
    )
    from porting.api import PortedModel, to_ipu
    from porting.capture import StepGraph, capture_step
    from porting.compute_mode import ComputeMode
    from porting.diagnostics import Finding, PortingError, render
    from porting.exports import load_step
    from porting.exports.compiling import compile_step
    from porting.exports.dumps import dump_graph
    from porting.exports.export import export
    from porting.options import PortOptions
    from porting.planning import memory_report
    from porting.process import Instance, this_instance
    from porting.training_loop import fit
    from porting.verify import PlainTraining, TrainingComparison, compare_training

__version__ = "0.1.0"

__all__ = [
    "ComputeMode",
    "Finding",
    "FixedBatchDataset",
    "Instance",
    "LossInForward",
    "PlainTraining",
    "PortOptions",
    "PortedModel",
    "PortingError",
    "SchedulerBridge",
    "StepGraph",
    "TrainingComparison",
    "capture_step",
    "compare_training",
    "compile_step",
    "dump_graph",
    "export",
    "fit",
    "load_chainer_npz",
    "load_step",
    "masked_accuracy",
    "memory_report",
    "partition",
    "render",
    "sum_over_instances",
    "this_instance",
    "to_ipu",
]

_MODULES = {
    "ComputeMode": "porting.compute_mode",
    "Finding": "porting.diagnostics",
    "FixedBatchDataset": "porting.adapters",
    "Instance": "porting.process",
    "LossInForward": "porting.adapters",
    "PlainTraining": "porting.verify",
    "PortOptions": "porting.options",
    "PortedModel": "porting.api",
    "PortingError": "porting.diagnostics",
    "SchedulerBridge": "porting.adapters",
    "StepGraph": "porting.capture",
    "TrainingComparison": "porting.verify",
    "capture_step": "porting.capture",
    "compare_training": "porting.verify",
    "compile_step": "porting.exports.compiling",
    "dump_graph": "porting.exports.dumps",
    "export": "porting.exports",
    "fit": "porting.training_loop",
    "load_chainer_npz": "porting.adapters",
    "load_step": "porting.exports",
    "masked_accuracy": "porting.adapters",
    "memory_report": "porting.planning",
    "partition": "porting.adapters",
    "render": "porting.diagnostics",
    "sum_over_instances": "porting.adapters",
    "this_instance": "porting.process",
    "to_ipu": "porting.api",
}


# packages that are used by their name, as functions are: `porting.bench(...)`
_SUBPACKAGES = ("bench",)


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"porting.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'porting' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
