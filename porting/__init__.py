"""Port a PyTorch model to an IPU, real or simulated, in one call: `to_ipu(model, loss)`.

The public names are loaded on first use (PEP 562): `import porting` and the command line stay fast and need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from porting.version import VERSION

if TYPE_CHECKING:
    from porting.adapters import (
        Checkpoint,
        FixedBatchDataset,
        LossInForward,
        LossTerm,
        PortingWarning,
        SchedulerBridge,
        load_checkpoint,
        partition,
        save_checkpoint,
    )
    from porting.api import PortedModel, to_ipu
    from porting.capture import StepGraph, capture_step
    from porting.diagnostics import Finding, PortingError, render
    from porting.exports import load_step
    from porting.exports.compiling import compile_step
    from porting.exports.dumps import dump_graph
    from porting.exports.export import export
    from porting.options import PortOptions
    from porting.planning import memory_report
    from porting.support.process import Instance, this_instance
    from porting.training_loop import fit
    from porting.verify import PlainTraining, TrainingComparison, compare_training

__version__ = VERSION

__all__ = [
    "Checkpoint",
    "Finding",
    "FixedBatchDataset",
    "Instance",
    "LossInForward",
    "LossTerm",
    "PlainTraining",
    "PortOptions",
    "PortedModel",
    "PortingError",
    "PortingWarning",
    "SchedulerBridge",
    "StepGraph",
    "TrainingComparison",
    "capture_step",
    "compare_training",
    "compile_step",
    "dump_graph",
    "export",
    "fit",
    "load_checkpoint",
    "load_step",
    "memory_report",
    "partition",
    "render",
    "save_checkpoint",
    "this_instance",
    "to_ipu",
]

_MODULES = {
    "Checkpoint": "porting.adapters",
    "Finding": "porting.diagnostics",
    "FixedBatchDataset": "porting.adapters",
    "Instance": "porting.support.process",
    "LossInForward": "porting.adapters",
    "LossTerm": "porting.adapters",
    "PlainTraining": "porting.verify",
    "PortOptions": "porting.options",
    "PortedModel": "porting.api",
    "PortingError": "porting.diagnostics",
    "PortingWarning": "porting.adapters",
    "SchedulerBridge": "porting.adapters",
    "StepGraph": "porting.capture",
    "TrainingComparison": "porting.verify",
    "capture_step": "porting.capture",
    "compare_training": "porting.verify",
    "compile_step": "porting.exports.compiling",
    "dump_graph": "porting.exports.dumps",
    "export": "porting.exports",
    "fit": "porting.training_loop",
    "load_checkpoint": "porting.adapters",
    "load_step": "porting.exports",
    "memory_report": "porting.planning",
    "partition": "porting.adapters",
    "render": "porting.diagnostics",
    "save_checkpoint": "porting.adapters",
    "this_instance": "porting.support.process",
    "to_ipu": "porting.api",
}

# names that live in their packages; programs that import them from here go on to find them
_MOVED = {
    "ComputeMode": "porting.compute_mode",
    "load_chainer_npz": "porting.adapters",
    "masked_accuracy": "porting.adapters",
    "sum_over_instances": "porting.adapters",
}


# packages that are used by their name, as functions are: `porting.bench(...)`
_SUBPACKAGES = ("bench",)


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"porting.{name}")
    if name in _MOVED:
        return getattr(importlib.import_module(_MOVED[name]), name)
    if name not in _MODULES:
        raise AttributeError(f"module 'porting' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
