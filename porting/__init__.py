"""Port a PyTorch model to an IPU, real or simulated, in one call: `to_ipu(model, loss)`.

The public names are loaded on first use: `import porting` and the command line stay fast and need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.support.late_names import read_late_names
from porting.version import VERSION

if TYPE_CHECKING:  # `as` makes a name public
    from porting import check as check
    from porting import verify as verify
    from porting.adapters import Checkpoint as Checkpoint
    from porting.adapters import FixedBatchDataset as FixedBatchDataset
    from porting.adapters import LossInForward as LossInForward
    from porting.adapters import LossTerm as LossTerm
    from porting.adapters import SchedulerBridge as SchedulerBridge
    from porting.adapters import load_checkpoint as load_checkpoint
    from porting.adapters import partition as partition
    from porting.adapters import save_checkpoint as save_checkpoint
    from porting.api import PortedModel as PortedModel
    from porting.api import to_ipu as to_ipu
    from porting.capture import StepGraph as StepGraph
    from porting.capture import capture_step as capture_step
    from porting.check.report import Report as Report
    from porting.diagnostics import Finding as Finding
    from porting.diagnostics import PortingError as PortingError
    from porting.diagnostics import PortingWarning as PortingWarning
    from porting.diagnostics import render as render
    from porting.exports import load_step as load_step
    from porting.exports.compiling import compile_step as compile_step
    from porting.exports.dumps import dump_graph as dump_graph
    from porting.exports.export import export as export
    from porting.options import PortOptions as PortOptions
    from porting.options import register_backend as register_backend
    from porting.planning import memory_report as memory_report
    from porting.planning import plan as plan
    from porting.remedies import Fallback as Fallback
    from porting.remedies import op as op
    from porting.support.process import Instance as Instance
    from porting.support.process import this_instance as this_instance
    from porting.training_loop import fit as fit
    from porting.verify import Certificate as Certificate
    from porting.verify import PlainTraining as PlainTraining
    from porting.verify import PortedTraining as PortedTraining
    from porting.verify import TrainingComparison as TrainingComparison
    from porting.verify import check_backward as check_backward
    from porting.verify import compare_training as compare_training
    from porting.verify import numerical_grad as numerical_grad

if TYPE_CHECKING:  # not public: a package that is called, and names that programs still import from here
    from porting import bench  # noqa: F401
    from porting.adapters import load_chainer_npz, masked_accuracy, sum_over_instances  # noqa: F401
    from porting.compute_mode import ComputeMode  # noqa: F401

__version__ = VERSION

__all__, __getattr__, __dir__ = read_late_names(globals())
