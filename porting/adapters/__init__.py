"""What stands between a user's PyTorch objects and a device: loss, optimizer, schedule, batches, checkpoints.

The backend, a module with PopTorch's API, is an argument everywhere. The public names are loaded on first use (PEP
562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from porting.aliases import stand_for
from porting.diagnostics import PortingWarning, notify

if TYPE_CHECKING:
    from porting.adapters.backends import Backend, find_backend
    from porting.adapters.batches import LoaderReport, to_ipu_dataloader
    from porting.adapters.chainer_weights import load_chainer_npz
    from porting.adapters.checkpoints import (
        Checkpoint,
        load_checkpoint,
        load_weights,
        plain_state_dict,
        save_checkpoint,
    )
    from porting.adapters.fixed_batch import FixedBatchDataset, count_real, masked_accuracy, masked_mean
    from porting.adapters.instances import Share, partition, sum_over_instances
    from porting.adapters.loss import LossInForward
    from porting.adapters.loss_terms import LossTerm
    from porting.adapters.optimizer_state import carry_state, to_torch_state
    from porting.adapters.optimizers import default_optimizer, sync_hyper_parameters, to_backend_optimizer
    from porting.adapters.padding_checks import check_ignore_label, note_batchnorm
    from porting.adapters.precision import PrecisionPlan, apply_precision
    from porting.adapters.schedules import SchedulerBridge

if __name__ == "adapters":  # by the link at the top of a clone
    stand_for(__name__, "porting.adapters")

_MODULES = {
    "Backend": "backends",
    "Checkpoint": "checkpoints",
    "FixedBatchDataset": "fixed_batch",
    "LoaderReport": "batches",
    "LossInForward": "loss",
    "LossTerm": "loss_terms",
    "PrecisionPlan": "precision",
    "SchedulerBridge": "schedules",
    "Share": "instances",
    "apply_precision": "precision",
    "carry_state": "optimizer_state",
    "check_ignore_label": "padding_checks",
    "count_real": "fixed_batch",
    "default_optimizer": "optimizers",
    "find_backend": "backends",
    "load_chainer_npz": "chainer_weights",
    "load_checkpoint": "checkpoints",
    "load_weights": "checkpoints",
    "masked_accuracy": "fixed_batch",
    "masked_mean": "fixed_batch",
    "note_batchnorm": "padding_checks",
    "partition": "instances",
    "plain_state_dict": "checkpoints",
    "save_checkpoint": "checkpoints",
    "sum_over_instances": "instances",
    "sync_hyper_parameters": "optimizers",
    "to_backend_optimizer": "optimizers",
    "to_ipu_dataloader": "batches",
    "to_torch_state": "optimizer_state",
}

__all__ = [
    "Backend",
    "Checkpoint",
    "FixedBatchDataset",
    "LoaderReport",
    "LossInForward",
    "LossTerm",
    "PortingWarning",
    "PrecisionPlan",
    "SchedulerBridge",
    "Share",
    "apply_precision",
    "carry_state",
    "check_ignore_label",
    "count_real",
    "default_optimizer",
    "find_backend",
    "load_chainer_npz",
    "load_checkpoint",
    "load_weights",
    "masked_accuracy",
    "masked_mean",
    "note_batchnorm",
    "notify",
    "partition",
    "plain_state_dict",
    "save_checkpoint",
    "sum_over_instances",
    "sync_hyper_parameters",
    "to_backend_optimizer",
    "to_ipu_dataloader",
    "to_torch_state",
]


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
