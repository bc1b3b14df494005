"""Adapters of a user's PyTorch objects to a device: loss, optimizer, schedule, batches, checkpoints.

The backend, a module with PopTorch's API, is an argument everywhere. The public names are loaded on first use (PEP
562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from porting.aliases import stand_for
from porting.diagnostics import PortingWarning as PortingWarning
from porting.diagnostics import notify as notify

if TYPE_CHECKING:  # `as` tells type checkers that the names are public
    from porting.adapters.backends import Backend as Backend
    from porting.adapters.backends import find_backend as find_backend
    from porting.adapters.batch_statistics import note_batchnorm as note_batchnorm
    from porting.adapters.batches import to_ipu_dataloader as to_ipu_dataloader
    from porting.adapters.chainer_weights import load_chainer_npz as load_chainer_npz
    from porting.adapters.checkpoints import Checkpoint as Checkpoint
    from porting.adapters.checkpoints import load_checkpoint as load_checkpoint
    from porting.adapters.checkpoints import load_weights as load_weights
    from porting.adapters.checkpoints import plain_state_dict as plain_state_dict
    from porting.adapters.checkpoints import save_checkpoint as save_checkpoint
    from porting.adapters.fixed_batch import FixedBatchDataset as FixedBatchDataset
    from porting.adapters.fixed_batch import count_real as count_real
    from porting.adapters.fixed_batch import masked_accuracy as masked_accuracy
    from porting.adapters.fixed_batch import masked_mean as masked_mean
    from porting.adapters.instances import Share as Share
    from porting.adapters.instances import partition as partition
    from porting.adapters.instances import sum_over_instances as sum_over_instances
    from porting.adapters.loader_report import LoaderReport as LoaderReport
    from porting.adapters.loss import LossInForward as LossInForward
    from porting.adapters.loss_terms import LossTerm as LossTerm
    from porting.adapters.optimizer_state import carry_state as carry_state
    from porting.adapters.optimizer_state import to_torch_state as to_torch_state
    from porting.adapters.optimizers import default_optimizer as default_optimizer
    from porting.adapters.optimizers import sync_hyper_parameters as sync_hyper_parameters
    from porting.adapters.optimizers import to_backend_optimizer as to_backend_optimizer
    from porting.adapters.padding_checks import check_ignore_label as check_ignore_label
    from porting.adapters.precision import PrecisionPlan as PrecisionPlan
    from porting.adapters.precision import apply_precision as apply_precision
    from porting.adapters.schedules import SchedulerBridge as SchedulerBridge

if __name__ == "adapters":  # by the link at the top of a clone
    stand_for(__name__, "porting.adapters")

_NAMES_BY_MODULE = {
    "backends": ("Backend", "find_backend"),
    "batch_statistics": ("note_batchnorm",),
    "batches": ("to_ipu_dataloader",),
    "chainer_weights": ("load_chainer_npz",),
    "checkpoints": ("Checkpoint", "load_checkpoint", "load_weights", "plain_state_dict", "save_checkpoint"),
    "fixed_batch": ("FixedBatchDataset", "count_real", "masked_accuracy", "masked_mean"),
    "instances": ("Share", "partition", "sum_over_instances"),
    "loader_report": ("LoaderReport",),
    "loss": ("LossInForward",),
    "loss_terms": ("LossTerm",),
    "optimizer_state": ("carry_state", "to_torch_state"),
    "optimizers": ("default_optimizer", "sync_hyper_parameters", "to_backend_optimizer"),
    "padding_checks": ("check_ignore_label",),
    "precision": ("PrecisionPlan", "apply_precision"),
    "schedules": ("SchedulerBridge",),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = sorted([*_MODULES, "PortingWarning", "notify"])


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
